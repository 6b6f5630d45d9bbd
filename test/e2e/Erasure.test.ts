/** The places that have a customer's id, as docs/erasure.md lists them, and `customer erase`, which takes it out of most. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import type { Erasure } from "../../src/application/erasure/EraseCustomer.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { send } from "../http/Service.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const customer = "ada-lovelace-1815"

/** The tables of the page, each with what the command does there. */
const listed = [
  ...readFileSync(Path.join(root, "docs/erasure.md"), "utf8").matchAll(/^\| `(\w+)` \|.*\| ([^|]+) \|$/gm)
].map(([, table, effect]) => ({ table: table!, effect: effect! }))

/** Those that the command leaves alone. */
const staying = listed.filter(({ effect }) => effect.startsWith("stays")).map(({ table }) => table)

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
  "a customer's id is in the places that docs/erasure.md lists, and after customer erase in those that it calls staying",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const environment = environmentWith({ LOG_LEVEL: "Info" })
      const run = (name: string, ...args: ReadonlyArray<string>) => commandOf(name, environment)(...args)
      const erase = (...args: ReadonlyArray<string>) => run("customer", "erase", "--customer", customer, ...args)
      const succeeds = Effect.fnUntraced(function* (name: string, ...args: ReadonlyArray<string>) {
        const done = yield* run(name, ...args)
        assert.strictEqual(done.code, 0, `${name} ${args.join(" ")}: ${done.stdout}${done.stderr}`)
        return done.stdout
      })
      const service = yield* ServiceProcess.start({ env: { ...(yield* environment), ...plantedEnv() } })
      const key = (name: string) => ({ headers: { "idempotency-key": name } })
      const place = send(`${service.url}/orders`, {
        ...key("place"),
        body: { customerId: customer, currency: "EUR", lines: [{ sku: "book", quantity: 1, unitAmountMinor: 2_500 }] }
      })
      const placed = yield* place
      const order = `${service.url}/orders/${placed.json.id}`
      yield* succeeds("tasks", "pause", "email", "--reason", "the mail server moves")
      const pay = send(`${order}/pay`, { ...key("pay"), body: { paymentMethod: "pm_ok" } })
      const paid = yield* pay
      yield* send(`${order}/refund`, { ...key("refund"), method: "POST" })
      const becomes = (what: string, isSo: { readonly mails: number; readonly marks: number }) =>
        eventually(
          what,
          Effect.map(
            sql<{ readonly mails: number; readonly marks: number }>`
              SELECT (SELECT count(*) FROM mail_deliveries WHERE status = 'sent')::int4 AS mails,
                     (SELECT count(*) FROM processed_events)::int4 AS marks`,
            ([row]) => row!.mails === isSo.mails && row!.marks === isSo.marks
          )
        )
      yield* becomes("all events to be applied", { mails: 0, marks: 12 })

      for (const [args, words] of [
        [[], "customer erase needs --reason, which the audit keeps, or --dry-run"],
        [["--reason", `${customer}, by letter`], "leave the customer's id out of it"]
      ] as const) {
        const wrong = yield* erase(...args)
        assert.strictEqual(wrong.code, 2)
        assert.include(wrong.stderr, words)
      }
      const nobody = yield* run("customer", "erase", "--customer", `erased-${placed.json.id}`, "--reason", "request 7")
      assert.strictEqual(nobody.code, 2)
      assert.include(nobody.stderr, "is the id that an erasure has left")
      const waiting = yield* erase("--reason", "request 7")
      assert.strictEqual(waiting.code, 1, waiting.stderr)
      assert.match(waiting.stdout, /^Nothing was erased\.\n2 things are under way, and need the id:\n/)
      assert.match(
        waiting.stdout,
        /order \S+: mail (\S+) waits to be sent \(paid-once tasks show \1, or tasks cancel \1\)/
      )

      yield* succeeds("tasks", "resume", "email", "--reason", "it has moved")
      yield* becomes("both mails to be sent", { mails: 2, marks: 12 })
      const passing = listed.filter(({ effect }) => /^waits|discarded/.test(effect)).map(({ table }) => table)
      const kept = listed.map(({ table }) => table).filter((table) => !passing.includes(table))
      assert.strictEqual(passing.length, 5)
      assert.deepStrictEqual(yield* holding, kept.toSorted())

      assert.match(
        yield* succeeds("customer", "erase", "--customer", customer, "--dry-run"),
        /^1 order has the customer's id\.\n/
      )
      assert.deepStrictEqual(yield* holding, kept.toSorted())
      const told = yield* succeeds("customer", "erase", "--customer", customer, "--reason", "request 7")
      assert.match(told, /^Erased the customer of 1 order: /)
      assert.match(told, /answers to repeated requests \(idempotency_keys\): 3, the last until \d{4}-/)
      assert.deepStrictEqual(yield* holding, staying.toSorted())

      // All goes on as before.
      for (const [again, before] of [
        [yield* place, placed],
        [yield* pay, paid]
      ] as const) {
        assert.strictEqual(again.status, before.status)
        assert.deepStrictEqual(again.json, before.json)
      }
      const { json: shown } = yield* send(order)
      assert.deepInclude(shown, { id: placed.json.id, customerId: `erased-${placed.json.id}`, status: "refunded" })
      const { json: timeline } = yield* send(`${order}/timeline`)
      assert.deepInclude(timeline, { complete: true })
      yield* succeeds("reconcile")
      yield* succeeds(
        "replay",
        "receipts",
        "--aggregate",
        placed.json.id,
        "--apply",
        "--reason",
        "to see that nothing comes of it"
      )
      yield* succeeds("rebuild", "analytics", "--reason", "to see that it can")
      assert.deepStrictEqual(yield* sql`SELECT count(*)::int4 AS mails FROM outbox_tasks WHERE task_type = 'email'`, [
        { mails: 2 }
      ])
      const audit = JSON.parse(yield* succeeds("audit", "list", "--action", "erase", "--json"))
      assert.strictEqual(audit.items.length, 1)
      assert.deepInclude(audit.items[0], { subject: "order", subjectId: placed.json.id, reason: "request 7" })

      const again = JSON.parse(
        yield* succeeds("customer", "erase", "--customer", customer, "--reason", "once more", "--json")
      ) as Erasure
      assert.deepInclude(again, { orders: 0, underWayCount: 0, left: 0 })
      assert.strictEqual(again.answers.count, 3)
      assert.include(
        yield* succeeds("customer", "erase", "--customer", customer, "--reason", "once more"),
        "until the date that the run told which erased his orders, if one did"
      )
      // The archive loses the events, and the topic still has them with the id.
      yield* sql`DELETE FROM event_log`
      assert.match(
        yield* succeeds("archive", "refill", "--since", "1d", "--reason", "a rebuild"),
        /^Filled 3 events into the archive/
      )
      assert.deepStrictEqual(yield* holding, staying.toSorted())
      yield* succeeds("reconcile")
      assert.match(
        yield* succeeds("archive", "refill", "--dry-run"),
        /3 events whose customer is erased in the archive/
      )
      assert.notInclude(service.output(), customer)
    }).pipe(Effect.scoped, Effect.provide(Layer.provideMerge(Directory.layer, TestDatabase.layerPool))),
  240_000
)
