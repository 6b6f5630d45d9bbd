/** The doctor's check that somebody compares the books: the alert looks at the last result, and says nothing of its age. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type Check, told } from "../../operations/doctor/Check.ts"
import * as Rows from "../../platform/Rows.ts"

/** It runs each night: after this time one has failed, or no process was there for it. */
const staleDays = 2

const row = Rows.one(
  Schema.Struct({ days: Schema.NullOr(Schema.Finite), firstOrderDays: Schema.NullOr(Schema.Finite) })
)

export const check: Check<SqlClient.SqlClient> = {
  group: "upkeep",
  name: "books-compared",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { days, firstOrderDays } = yield* row(sql`
      SELECT extract(epoch FROM clock_now() - (SELECT max(finished_at) FROM reconciliation_runs))::float8 / 86400 AS days,
             extract(epoch FROM clock_now() - uuid_v7_time((SELECT id FROM orders ORDER BY id LIMIT 1)))::float8 / 86400 AS "firstOrderDays"`)
    // A young service has had no night yet.
    const sinceDays = days ?? firstOrderDays ?? 0
    return told(
      days === null ? "the books have had no night yet" : `the books were compared ${days.toFixed(1)} days ago`,
      sinceDays <= staleDays
        ? []
        : [
            {
              problem: `the books ${days === null ? "were never compared" : `were last compared ${days.toFixed(0)} days ago`}: a difference raises no alert`,
              fix: "Run it, and let a process with the role maintenance be there at three in the morning (UTC); its log says why it failed",
              command: "npm run paid-once -- reconcile"
            }
          ]
    )
  })
}
