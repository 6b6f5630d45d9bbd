/** Where a customer's id is kept: docs/erasure.md lists each place, and its statement takes the id out of the one that nothing else clears. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { send } from "../http/Service.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const customer = "ada-lovelace-1815"
const page = readFileSync(Path.join(root, "docs/erasure.md"), "utf8")

/** The tables of the page, with what becomes of each. */
const listed = [...page.matchAll(/^\| `(\w+)` \|/gm)].map(([, table]) => table!)
const statement = /```sql\n([^`]+)```/.exec(page)![1]!.replace("'CUSTOMER'", `'${customer}'`)

/** Every table that has the id somewhere, as text or in bytes; a partition counts as its table. */
const holding = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* sql<{ readonly path: string; readonly name: string }>`
    SELECT c.oid::regclass::text AS path, coalesce(parent.relname, c.relname) AS name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid LEFT JOIN pg_class AS parent ON parent.oid = i.inhparent
    WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')`
  const inBytes = Buffer.from(customer).toString("hex")
  const found = yield* Effect.filter(tables, ({ path }) =>
    Effect.map(
      sql.unsafe(
        `SELECT 1 FROM ${path} AS t WHERE t::text LIKE '%${customer}%' OR t::text LIKE '%${inBytes}%' LIMIT 1`
      ),
      (rows) => rows.length > 0
    )
  )
  return [...new Set(found.map(({ name }) => name))].toSorted()
})

it.live(
  "a customer's id is in the places that docs/erasure.md lists, and in no other table and no log",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const environment = environmentWith({ LOG_LEVEL: "Info" })
      const service = yield* ServiceProcess.start({ env: { ...(yield* environment), ...plantedEnv() } })
      const key = (name: string) => ({ headers: { "idempotency-key": name } })
      const { json: order } = yield* send(`${service.url}/orders`, {
        ...key("place"),
        body: { customerId: customer, currency: "EUR", lines: [{ sku: "book", quantity: 1, unitAmountMinor: 2_500 }] }
      })
      yield* send(`${service.url}/orders/${order.id}/pay`, { ...key("pay"), body: { paymentMethod: "pm_ok" } })
      yield* send(`${service.url}/orders/${order.id}/refund`, { ...key("refund"), method: "POST" })
      yield* eventually(
        "both mails to be sent, and all events to be applied",
        Effect.map(
          sql<{ readonly mails: number; readonly marks: number }>`
            SELECT (SELECT count(*) FROM mail_deliveries WHERE status = 'sent')::int4 AS mails,
                   (SELECT count(*) FROM processed_events)::int4 AS marks`,
          ([row]) => row!.mails === 2 && row!.marks === 12
        )
      )
      const passing = ["outbox_events", "outbox_parked", "outbox_dead_letters", "inbox_parked", "inbox_dead_letters"]
      const kept = listed.filter((table) => !passing.includes(table)).toSorted()
      assert.deepStrictEqual(yield* holding, kept)
      assert.includeMembers(listed, passing)
      assert.notInclude(service.output(), customer)

      // An order's row changes with its events alone, so this is the owner's, and no use case.
      yield* sql.unsafe(statement)
      assert.deepStrictEqual(
        yield* holding,
        kept.filter((table) => table !== "orders")
      )
      const reconciled = yield* commandOf("reconcile", environment)()
      assert.strictEqual(reconciled.code, 0, reconciled.stdout + reconciled.stderr)
      const { json: shown } = yield* send(`${service.url}/orders/${order.id}`)
      assert.deepInclude(shown, { id: order.id, customerId: `erased-${order.id}`, status: "refunded" })
    }).pipe(Effect.scoped, Effect.provide(Layer.provideMerge(Directory.layer, TestDatabase.layerPool))),
  120_000
)
