/** A rebuild under load that is killed at random moments, as a suite for the embedded broker and for a real Kafka. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import { SqlClient } from "effect/sql"
import { type ChildProcess, spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { send, sendElsewhere } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"
import type { Target } from "./Targets.ts"

/** Orders of the past weeks: so many that a rebuild lasts for some seconds, and is killed in the middle. */
const pastOrders = 12_000

/** Customers who act at once. */
const customers = 4

/** Rebuilds that are killed, each at another moment. */
const kills = 8

/** A row of revenue_daily. */
type Line = string

export const revenue = (which: "past" | "all") =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ readonly line: Line }>`
        SELECT day::text || ' ' || currency || ' ' || amount_minor::text AS line FROM revenue_daily
        WHERE ${which === "all"} OR day < (clock_now() AT TIME ZONE 'UTC')::date - 5 ORDER BY 1`,
      (rows) => rows.map(({ line }) => line)
    )
  )

/** Weeks of orders, as their events left them: in the archive, and applied by analytics. */
const makePast = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    DO $$ BEGIN
      CREATE TEMPORARY TABLE past AS
        SELECT uuidv7(-interval '20 days' - n * interval '1 minute') AS order_id, n, clock_now() - interval '20 days' - n * interval '1 minute' AS at,
               (ARRAY['EUR', 'USD', 'JPY'])[1 + n % 3] AS currency, CASE WHEN n % 10 = 0 THEN 3 ELSE 2 END AS version
        FROM generate_series(1, ${sql.literal(String(pastOrders))}) AS n;
      INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
        span_id, data, broker_partition, broker_offset, published_at)
      SELECT uuidv7(at - clock_now() + v * interval '1 second'), 'orders', (ARRAY['OrderPlaced', 'OrderPaid', 'OrderRefunded'])[v], 1, 'Order',
             order_id::text, v, at + v * interval '1 second', repeat('0', 32), repeat('0', 16),
             CASE v WHEN 1 THEN json_build_object('customerId', 'ada', 'total', money, 'lines',
                         json_build_array(json_build_object('sku', 'book', 'quantity', 1, 'unitAmountMinor', 100 + n)))
                    ELSE json_build_object('customerId', 'ada', 'paymentId', order_id, 'amount', money) END,
             0, 3 * n + v, at
      FROM past, LATERAL (SELECT json_build_object('amountMinor', 100 + n, 'currency', currency) AS money) AS m, generate_series(1, version) AS v;
      INSERT INTO consumer_cursors SELECT 'analytics', order_id::text, 'Order', version FROM past;
      INSERT INTO revenue_daily
      SELECT (occurred_at AT TIME ZONE 'UTC')::date, data -> 'amount' ->> 'currency',
             sum((data -> 'amount' ->> 'amountMinor')::numeric * CASE event_type WHEN 'OrderPaid' THEN 1 ELSE -1 END)
      FROM event_log WHERE event_type <> 'OrderPlaced' GROUP BY 1, 2;
      ANALYZE event_log, consumer_cursors;
    END $$`
)

/** An event, as far as revenue depends on it. */
export interface Paid {
  readonly eventId: string
  readonly eventType: string
  readonly occurredAt: string
  readonly data: { readonly amount?: { readonly amountMinor: number; readonly currency: string } }
}

/** The table of a consumer that has had each of these events once, in plain words. */
export const revenueOf = (events: ReadonlyArray<Paid>): ReadonlyArray<Line> => {
  const sums = new Map<string, bigint>()
  for (const { data, eventType, occurredAt } of new Map(events.map((event) => [event.eventId, event])).values()) {
    if (eventType !== "OrderPaid" && eventType !== "OrderRefunded") continue
    const key = `${occurredAt.slice(0, 10)} ${data.amount!.currency}`
    const sign = eventType === "OrderPaid" ? 1n : -1n
    sums.set(key, (sums.get(key) ?? 0n) + sign * BigInt(data.amount!.amountMinor))
  }
  return [...sums].map(([key, sum]) => `${key} ${sum}`).toSorted()
}

const archived = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<Paid>`
    SELECT event_id::text AS "eventId", event_type AS "eventType", data,
           to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt" FROM event_log`
)

/** Starts `paid-once rebuild analytics`, and returns the moment at which it has told of its phase, and its end. */
const startRebuild = (env: Readonly<Record<string, string>>) => {
  let output = ""
  const child: ChildProcess = spawn(
    process.execPath,
    [Path.join(root, "src/paid-once.js"), "rebuild", "analytics", "--reason", "a test", "--json"],
    { env: { PATH: process.env["PATH"], ...plantedEnv(), ...env }, stdio: ["ignore", "pipe", "pipe"] }
  )
  const take = (chunk: Buffer) => void (output += chunk.toString())
  child.stdout?.on("data", take)
  child.stderr?.on("data", take)
  const ended = new Promise<NodeJS.Signals | number>((resolve) =>
    child.on("close", (code, signal) => resolve(signal ?? code ?? 1))
  )
  return {
    ended: Effect.promise(() => ended),
    output: () => output,
    kill: Effect.sync(() => void child.kill("SIGKILL")),
    told: (phase: string) =>
      eventually(
        `a rebuild that is ${phase}`,
        Effect.sync(() => output.includes(`"phase":"${phase}"`) || child.exitCode !== null)
      )
  }
}

export const rebuildUnderLoad = (name: string, target: () => Target) =>
  it.live(
    `a rebuild under load that is killed again and again, ${name}: the rows of a consumer that never stopped`,
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const broker = target()
        const environment = environmentWith({ ...broker.env, OUTBOX_RETENTION_DAYS: "0" })
        const env = yield* environment
        yield* makePast
        const right = yield* revenue("past")
        const past = yield* archived
        assert.deepStrictEqual(right, revenueOf(past))
        // What a rebuild is for: rows that are wrong, missing and too many.
        yield* sql`UPDATE revenue_daily SET amount_minor = amount_minor + 1 WHERE currency = 'USD'`
        yield* sql`DELETE FROM revenue_daily WHERE ctid IN (SELECT ctid FROM revenue_daily WHERE currency = 'EUR' LIMIT 1)`
        yield* sql`INSERT INTO revenue_daily VALUES ('2020-01-01', 'CHF', 5)`
        /** The rows that a reader may see: those before a rebuild, and those after it. */
        const allowed = new Set([right.join("\n"), (yield* revenue("past")).join("\n")])

        const service = yield* ServiceProcess.start({ env })
        const url = service.url!
        let orders = 0
        const customer = Effect.gen(function* () {
          const way = ++orders % 5
          const body = {
            customerId: "ada",
            currency: way === 2 ? "USD" : "EUR",
            lines: [{ sku: "book", quantity: 1, unitAmountMinor: 1_000 + orders }]
          }
          const { json: order } = yield* send(`${url}/orders`, { body })
          if (way === 3) {
            yield* sendElsewhere(`${url}/orders/${order.id}/cancel`, { method: "POST" })
            return
          }
          yield* sendElsewhere(`${url}/orders/${order.id}/pay`, {
            headers: { "idempotency-key": randomUUID() },
            body: { paymentMethod: way === 4 ? "pm_declined" : "pm_ok" }
          })
          if (way === 1) yield* sendElsewhere(`${url}/orders/${order.id}/refund`, { method: "POST" })
        })
        const traffic = yield* Effect.forkChild(
          Effect.forEach(Array.from({ length: customers }), () => Effect.forever(customer), { concurrency: customers })
        )
        /** What readers see of the days that are over, whenever they look. */
        const seen = new Set<string>()
        const reader = yield* Effect.forkChild(
          Effect.forever(
            Effect.andThen(
              Effect.map(revenue("past"), (lines) => void seen.add(lines.join("\n"))),
              Effect.sleep("5 millis")
            )
          )
        )

        let swaps = 0
        for (let kill = 0; kill < kills; kill++) {
          const rebuild = startRebuild(env)
          yield* rebuild.told(kill % 4 === 3 ? "swapping" : "filling")
          yield* Effect.sleep((yield* Random.next) * (kill % 4 === 3 ? 30 : 1_500))
          yield* rebuild.kill
          const end = yield* rebuild.ended
          if (end !== "SIGKILL") assert.strictEqual(end, 0, rebuild.output())
          const [done] = yield* sql<{ readonly count: number }>`
          SELECT count(*)::int4 AS count FROM operator_audit WHERE action = 'rebuild'`
          if (done!.count === swaps) continue
          // It was killed after its swap. Something has to be wrong again for the next one.
          swaps = done!.count
          assert.deepStrictEqual(yield* revenue("past"), right)
          yield* sql`UPDATE revenue_daily SET amount_minor = amount_minor + 1 WHERE currency = 'USD' AND day < (clock_now() AT TIME ZONE 'UTC')::date - 5`
          allowed.add((yield* revenue("past")).join("\n"))
        }
        const before = orders
        const last = startRebuild(env)
        assert.strictEqual(yield* last.ended, 0, last.output())
        assert.deepStrictEqual(yield* revenue("past"), right)
        assert.isAbove(orders, before, "orders go on while a rebuild runs")
        yield* Fiber.interrupt(traffic)
        yield* Fiber.interrupt(reader)

        // A paused consumer stays where it is, and a rebuild with it.
        const consumers = commandOf("consumers", environment)
        assert.strictEqual((yield* consumers("pause", "analytics", "--reason", "a test")).code, 0)
        for (let count = 0; count < 10; count++) yield* customer
        const paused = startRebuild(env)
        assert.strictEqual(yield* paused.ended, 0, paused.output())
        assert.strictEqual((yield* consumers("resume", "analytics", "--reason", "a test")).code, 0)
        yield* eventually(
          "analytics to have applied all that was published",
          Effect.map(
            sql`SELECT 1 AS one FROM orders AS o WHERE NOT EXISTS (
                SELECT FROM consumer_cursors WHERE consumer_name = 'analytics' AND aggregate_id = o.id::text AND version = o.version) LIMIT 1`,
            (rows) => rows.length === 0
          )
        )

        const fresh = (yield* archived).length - past.length
        const topic = (yield* broker.readTopic(fresh)).map(({ value }) => JSON.parse(value) as Paid)
        assert.isAbove(fresh, 100)
        assert.deepStrictEqual(yield* revenue("all"), revenueOf([...past, ...topic]))
        assert.deepStrictEqual(
          [...seen].filter((lines) => !allowed.has(lines)),
          []
        )
        const [left] = yield* sql<{ readonly rows: number }>`
        SELECT ((SELECT count(*) FROM revenue_daily_rebuilt) + (SELECT count(*) FROM rebuild_cursors) + (SELECT count(*) FROM rebuilds))::int4 AS rows`
        assert.strictEqual(left!.rows, 0)
        process.stderr.write(
          `rebuild, ${name}: ${orders} orders under load, ${kills} kills, ${swaps} of them after the swap; ${last.output().split("\n").at(-2)}\n`
        )
      }).pipe(Effect.scoped, Effect.provide(Directory.layer), Effect.provide(TestDatabase.layerPool))
  )
