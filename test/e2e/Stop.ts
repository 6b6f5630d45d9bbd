/** The stop of a process under load, and one process taking over from another, as a suite for both brokers. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as Traffic from "../support/Traffic.ts"
import type { Target } from "./Targets.ts"

const consumers = ["analytics", "billing", "inventory", "receipts"]

const start = (env: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const directory = yield* TestDatabase.dataDirectory
    const service = yield* ServiceProcess.start({
      env: {
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Warn",
        ...env,
        // Long, so that duplicates and lost answers come from the stop, and not from a machine that stands still for some seconds.
        OUTBOX_SESSION_TIMEOUT_MILLIS: "60000",
        CONSUMER_SESSION_TIMEOUT_MILLIS: "20000",
        GATEWAY_TIMEOUT_MILLIS: "30000",
        SHUTDOWN_GRACE_MILLIS: "60000",
        // A stop that takes longer ends with exit code 1.
        SHUTDOWN_HARD_MILLIS: "90000"
      }
    })
    return { ...service, url: service.url! }
  })

/** The state after everything has settled: one row of facts, compared as a whole. */
const facts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{
    readonly orders: number
    readonly paid: number
    readonly events: number
    readonly queued: number
    readonly applied: Readonly<Record<string, number>> | null
    readonly booked: number
    readonly reserved: number
    readonly receipts: number
    readonly revenue: number | null
    readonly paidMinor: number | null
  }>`
    SELECT (SELECT count(*) FROM orders)::int4 AS orders,
           (SELECT count(*) FROM orders WHERE status = 'paid')::int4 AS paid,
           (SELECT count(*) FROM event_log)::int4 AS events,
           (SELECT count(*) FROM outbox_events)::int4 AS queued,
           (SELECT json_object_agg(consumer_name, n) FROM
              (SELECT consumer_name, count(*)::int4 AS n FROM processed_events GROUP BY consumer_name) AS p) AS applied,
           (SELECT count(*) FROM billing_ledger)::int4 AS booked,
           (SELECT count(*) FROM inventory_reservations)::int4 AS reserved,
           (SELECT count(*) FROM outbox_tasks WHERE task_type = 'email')::int4 AS receipts,
           (SELECT sum(amount_minor) FROM revenue_daily)::float8 AS revenue,
           (SELECT sum(total_amount_minor) FROM orders WHERE status = 'paid')::float8 AS "paidMinor"`
  return row!
})

const settled = eventually(
  "every event to be published and applied by all consumers",
  Effect.map(
    facts,
    ({ applied, events, queued }) => queued === 0 && consumers.every((name) => applied?.[name] === events)
  )
)

/** Whether a request with this key has been taken, in whatever state it is. */
const taken = Effect.map(
  SqlClient.SqlClient,
  (sql) => (key: string) =>
    Effect.map(
      Effect.orDie(sql`SELECT FROM idempotency_keys WHERE idempotency_key = ${key}`),
      (rows) => rows.length > 0
    )
)

/** Asserts that each order that a client was told of has each effect once. Returns the number of events. */
const assertOnce = Effect.fnUntraced(function* (traffic: Traffic.Traffic) {
  yield* settled
  const sql = yield* SqlClient.SqlClient
  const found = yield* facts
  // A refused client may have left an order that was never paid.
  assert.deepStrictEqual(
    { ...found },
    {
      orders: traffic.placed().length,
      paid: traffic.paid().length,
      events: traffic.placed().length + traffic.paid().length,
      queued: 0,
      applied: Object.fromEntries(consumers.map((name) => [name, found.events])),
      booked: found.paid,
      reserved: found.orders,
      receipts: found.paid,
      revenue: found.paidMinor,
      paidMinor: found.paidMinor
    }
  )
  const unpaid = yield* sql<{ readonly id: string }>`
    SELECT id FROM unnest(${[...traffic.paid()]}::uuid[]) AS told(id) WHERE NOT EXISTS (
      SELECT FROM orders WHERE orders.id = told.id AND status = 'paid')`
  assert.deepStrictEqual(unpaid, [])
  return found.events
})

/** Asserts that a dead process has left no lease and no session behind. */
const assertNothingHeld = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  assert.deepStrictEqual(
    yield* sql`
      SELECT task_type, state, attempts, last_error FROM outbox_tasks
      WHERE attempts > 1 OR state NOT IN ('pending', 'completed')`,
    []
  )
  // Postgres notices the end of a connection a moment later.
  yield* eventually(
    "its sessions to be gone",
    Effect.map(
      sql`SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'paid-once %'`,
      (rows) => rows.length === 0
    )
  )
})

/** Events that were delivered to a consumer of this process a second time. */
const duplicates = (url: string) =>
  Effect.promise(async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text()
    return metrics
      .split("\n")
      .filter((line) => line.startsWith("inbox_events_total{") && line.includes(`outcome="duplicate"`))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0)
  })

/** Runs the suite. `target` is called once for each test, and gives it topics of its own. */
export const stopping = (name: string, target: Effect.Effect<Target>) => {
  it.live(
    `${name}: SIGTERM under load ends with 0; no request fails but by a refused connection, and nothing is lost, left half done, or sent or handed out twice`,
    () =>
      Effect.gen(function* () {
        const { env, readTopic } = yield* target
        const first = yield* start(env)
        const traffic = yield* Traffic.start({
          urls: () => [first.url],
          clients: 8,
          givesUp: true,
          taken: yield* taken
        })
        yield* eventually(
          "eighty payments",
          Effect.sync(() => traffic.paid().length >= 80)
        )
        yield* first.signal("SIGTERM")
        assert.strictEqual(yield* first.exit, 0, first.output())
        yield* traffic.end
        assert.deepStrictEqual(traffic.surprises(), [])
        assert.strictEqual(traffic.refused(), 8)
        yield* assertNothingHeld

        const second = yield* start(env)
        const events = yield* assertOnce(traffic)
        assert.strictEqual((yield* readTopic(events)).length, events)
        assert.strictEqual(yield* duplicates(second.url), 0)
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
    180_000
  )

  it.live(
    `${name}: processes that take over from one another under load are seen by clients as refused connections alone, and by consumers not at all`,
    () =>
      Effect.gen(function* () {
        const { env, readTopic } = yield* target
        let running = yield* start(env)
        let urls = [running.url]
        const traffic = yield* Traffic.start({ urls: () => urls, clients: 4, givesUp: false, taken: yield* taken })
        for (let turn = 1; turn <= 2; turn++) {
          const next = yield* start(env)
          urls = [running.url, next.url]
          const before = traffic.paid().length
          yield* eventually(
            "both to be at work",
            Effect.sync(() => traffic.paid().length >= before + 15)
          )
          yield* running.signal("SIGTERM")
          assert.strictEqual(yield* running.exit, 0, running.output())
          urls = [next.url]
          running = next
        }
        yield* traffic.end
        assert.deepStrictEqual(traffic.surprises(), [])
        assert.isAbove(traffic.refused(), 0)
        const events = yield* assertOnce(traffic)
        assert.strictEqual((yield* readTopic(events)).length, events)
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
    240_000
  )
}
