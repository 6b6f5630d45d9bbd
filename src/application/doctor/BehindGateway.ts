/**
 * The doctor's check of a restored database whose topic was restored with it: only the gateway has gone on. Its keys are payments' ids, which rise with
 * time. So the charges of a lost database come behind the newest payment that is here.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type Check, notChecked, told } from "../../operations/doctor/Check.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { GatewayLedger, ledgerPageSize } from "../GatewayLedger.ts"
import { compare } from "../reconciliation/GatewayRules.ts"

const idRows = Rows.all(Schema.Struct({ id: Schema.String }))

export const check: Check<GatewayLedger | SqlClient.SqlClient> = {
  group: "gateway",
  name: "database-behind-gateway",
  // As behind its topic: the fixes of other checks start processes, which would charge customers again.
  mendFirst: true,
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [newest] = yield* idRows(sql`SELECT id::text AS id FROM payments ORDER BY id DESC LIMIT 1`)
    const page = yield* Effect.result(GatewayLedger.use((ledger) => ledger.page(newest?.id ?? "")))
    if (page._tag === "Failure") return notChecked(page.failure.message)
    const unsettled = page.success.items.filter((entry) => compare(undefined, entry) !== undefined)
    // After the gateway's answer: a payment is here before it is charged.
    const here = new Set(
      (yield* idRows(
        sql`SELECT id::text AS id FROM payments WHERE id::text = ANY(${unsettled.map(({ key }) => key)}::text[])`
      )).map(({ id }) => id)
    )
    const unknown = unsettled.filter(({ key }) => !here.has(key))
    const [first] = unknown
    return told(
      "the gateway has charged nothing behind the newest payment that is here; reconcile compares all",
      first === undefined
        ? []
        : [
            {
              problem: `the database is behind the gateway: behind the newest payment that is here it has ${unknown.length === ledgerPageSize ? "at least " : ""}${countOf(unknown.length, "charge")} of payments that are not here, the first under key ${first.key}. It was restored from a backup, and customers may be charged again`,
              fix: "Start nothing on it, stop what runs, and settle these charges first (docs/restore.md)",
              command: "npm run paid-once -- reconcile"
            }
          ]
    )
  })
}
