/** The whole path over HTTP, as a suite that runs against the embedded broker and against a real Kafka. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random, Redacted, Ref, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import type { Target } from "./Targets.ts"

/** The contract's envelope, written down again: the reader must not share the writer's schema. */
const Value = Schema.fromJsonString(
  Schema.Struct({
    eventId: Schema.String,
    eventType: Schema.String,
    schemaVersion: Schema.Int,
    occurredAt: Schema.String,
    traceId: Schema.String,
    aggregateType: Schema.String,
    aggregateId: Schema.String,
    aggregateVersion: Schema.Int,
    data: Schema.Record(Schema.String, Schema.Unknown)
  })
)
const decodeValue = Schema.decodeUnknownSync(Value, { onExcessProperty: "error" })

class Unreachable extends Schema.TaggedError<Unreachable>()("Unreachable", {}) {}

/** Sends a request. A broken connection is {@link Unreachable}, and every answer is a value. */
const request = (url: string, path: string, body?: unknown, key?: string) =>
  Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(`${url}${path}`, {
        method: body === undefined ? "GET" : "POST",
        signal,
        headers: { "content-type": "application/json", ...(key === undefined ? {} : { "idempotency-key": key }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
      return { status: response.status, text: await response.text() }
    },
    catch: () => new Unreachable()
  })

const order = (index: number) => ({
  customerId: `customer-${index % 7}`,
  currency: index % 5 === 0 ? "USD" : "EUR",
  lines: [{ sku: "book", quantity: 1 + (index % 3), unitAmountMinor: 1_000 + index }]
})

const View = Schema.fromJsonString(
  Schema.Struct({ id: Schema.String, totalAmountMinor: Schema.Int, status: Schema.String })
)
const decodeView = Schema.decodeUnknownSync(View)

/** Repeats the request until there is a final answer, as a careful client with a key does. */
const insist = (url: Ref.Ref<string>, path: string, body: unknown, key: string) =>
  Effect.flatMap(Ref.get(url), (base) => request(base, path, body, key)).pipe(
    // 202: the outcome at the gateway is still unknown. 409: a request with this key is in progress, or its process has just died. 5xx: the
    // service starts or stops.
    Effect.filterOrFail(
      (answer) => answer.status !== 202 && answer.status !== 409 && answer.status < 500,
      () => new Unreachable()
    ),
    Effect.retry(Schedule.spaced("50 millis")),
    Effect.timeout("60 seconds")
  )

interface Sums {
  readonly paid: number
  readonly orders: string
  readonly captured: string
  readonly charged: string
  readonly charges: number
  readonly revenue: string
  /** The amount that the gateway owes, by the ledger. */
  readonly ledger: string
  readonly reserved: number
  readonly receipts: number
  readonly mailed: number
  /** Of all subscribers. */
  readonly marks: number
  readonly queued: number
  readonly applied: number
}

/** The sums of the same money in orders, payments, gateway and subscribers, by currency if those differ. */
const sums = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<Sums>`
    SELECT (SELECT count(*) FROM orders WHERE status = 'paid')::int4 AS paid,
           (SELECT string_agg(currency || ' ' || sum, ',' ORDER BY currency) FROM
              (SELECT currency, sum(total_amount_minor) AS sum FROM orders WHERE status = 'paid' GROUP BY currency) AS s) AS orders,
           (SELECT string_agg(currency || ' ' || sum, ',' ORDER BY currency) FROM
              (SELECT currency, sum(captured_minor - refunded_minor) AS sum FROM payments WHERE captured_minor > 0 GROUP BY currency) AS s) AS captured,
           (SELECT string_agg(currency || ' ' || sum, ',' ORDER BY currency) FROM
              (SELECT currency, sum(amount_minor) AS sum FROM sandbox_gateway.charges WHERE status = 'captured' GROUP BY currency) AS s) AS charged,
           (SELECT count(*) FROM sandbox_gateway.charges WHERE status = 'captured')::int4 AS charges,
           (SELECT string_agg(currency || ' ' || sum, ',' ORDER BY currency) FROM
              (SELECT currency, sum(amount_minor) AS sum FROM revenue_daily GROUP BY currency) AS s) AS revenue,
           (SELECT string_agg(currency || ' ' || balance_minor, ',' ORDER BY currency)
              FROM billing_balances WHERE account = 'gateway') AS ledger,
           (SELECT count(DISTINCT order_id) FROM inventory_reservations WHERE status = 'reserved')::int4 AS reserved,
           (SELECT count(*) FROM outbox_tasks WHERE task_type = 'email')::int4 AS receipts,
           (SELECT count(*) FROM mail_deliveries WHERE status = 'sent')::int4 AS mailed,
           (SELECT count(*) FROM processed_events)::int4 AS marks,
           (SELECT count(*) FROM outbox_events)::int4 AS queued,
           (SELECT count(*) FROM processed_events WHERE consumer_name = 'analytics')::int4 AS applied`
  return row!
})

const payments = 200

/** Runs the suite. `target` is called once for each test, and gives it topics of its own. */
export const endToEnd = (name: string, target: Effect.Effect<Target, never, TestDatabase>) => {
  const start = (env: Readonly<Record<string, string>>) =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const directory = yield* TestDatabase.dataDirectory
      return yield* ServiceProcess.start({
        env: {
          DATABASE_URL: Redacted.value(url),
          DATA_DIRECTORY: directory,
          PORT: "0",
          LOG_LEVEL: "Warn",
          GATEWAY_TIMEOUT_MILLIS: "1000",
          ...env
        }
      })
    })

  it.live(`${name}: an order is placed, paid, published with its envelope and headers, and applied`, () =>
    Effect.gen(function* () {
      const { env, readTopic } = yield* target
      // This needs an answer, however slow a process and its gateway are after their start.
      const { url } = yield* start({ ...env, GATEWAY_TIMEOUT_MILLIS: "30000" })
      const placed = yield* request(url!, "/orders", order(1))
      assert.strictEqual(placed.status, 201, placed.text)
      const { id } = decodeView(placed.text)
      const declined = yield* request(url!, `/orders/${id}/pay`, { paymentMethod: "pm_declined" }, "first")
      assert.strictEqual(declined.status, 402, declined.text)
      const paid = yield* request(url!, `/orders/${id}/pay`, { paymentMethod: "pm_ok" }, "second")
      assert.strictEqual(paid.status, 200, paid.text)
      assert.strictEqual(decodeView(paid.text).status, "paid")

      yield* eventually(
        "the queue to drain",
        Effect.map(queueLength, (queued) => queued === 0)
      )
      const records = yield* readTopic(3)
      const events = records.map((record) => decodeValue(record.value))
      assert.deepStrictEqual(
        events.map((event) => [event.eventType, event.aggregateVersion]),
        [
          ["OrderPlaced", 1],
          ["PaymentDeclined", 2],
          ["OrderPaid", 3]
        ]
      )
      for (const [index, event] of events.entries()) {
        const record = records[index]!
        assert.deepInclude(event, { schemaVersion: 1, aggregateType: "Order", aggregateId: id })
        assert.strictEqual(record.key, id)
        assert.match(event.eventId, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
        assert.match(event.traceId, /^[0-9a-f]{32}$/)
        assert.deepInclude(record.headers, {
          "event-id": event.eventId,
          outbox_id: event.eventId,
          "event-type": event.eventType,
          "schema-version": "1"
        })
        assert.match(record.headers["traceparent"] ?? "", new RegExp(`^00-${event.traceId}-[0-9a-f]{16}-01$`))
      }
      const timeline = yield* request(url!, `/orders/${id}/timeline`).pipe(
        Effect.repeat({ until: ({ text }) => !text.includes("pending"), schedule: Schedule.spaced("50 millis") }),
        Effect.timeout("30 seconds")
      )
      const seen = JSON.parse(timeline.text) as {
        readonly complete: boolean
        readonly events: ReadonlyArray<{ readonly delivery: { readonly state: string; readonly offset: string } }>
      }
      assert.isTrue(seen.complete)
      assert.deepStrictEqual(
        seen.events.map(({ delivery }) => [delivery.state, delivery.offset]),
        records.map((record) => ["published", String(record.offset)])
      )
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live(
    `${name}: kill -9 of the whole service in the middle of ${payments} payments, restarts, and everything adds up`,
    () =>
      Effect.gen(function* () {
        const { env, readTopic } = yield* target
        const first = yield* start(env)
        const url = yield* Ref.make(first.url!)
        const done = yield* Ref.make(0)
        const clients = yield* Effect.forkChild(
          Effect.forEach(
            Array.from({ length: payments }, (_, index) => index),
            (index) =>
              Effect.gen(function* () {
                const placed = yield* insist(url, "/orders", order(index), `place-${index}`)
                assert.strictEqual(placed.status, 201, placed.text)
                const view = decodeView(placed.text)
                const paid = yield* insist(url, `/orders/${view.id}/pay`, { paymentMethod: "pm_ok" }, `pay-${index}`)
                assert.strictEqual(paid.status, 200, paid.text)
                yield* Ref.update(done, (n) => n + 1)
                return view
              }),
            { concurrency: 8 }
          )
        )
        // Three crashes, each in the middle of some work.
        let running = first
        for (const quarter of [1, 2, 3]) {
          const at = Math.floor((payments * quarter) / 4) + (yield* Random.nextIntBetween(0, 10))
          // A failed client explains more than a timeout.
          yield* Effect.raceFirst(
            eventually(
              `${at} payments`,
              Effect.map(Ref.get(done), (n) => n >= at)
            ),
            Fiber.join(clients)
          )
          yield* running.signal("SIGKILL")
          yield* running.exit
          running = yield* start(env)
          yield* Ref.set(url, running.url!)
        }
        const views = yield* Fiber.join(clients)
        yield* eventually(
          "the queue to drain and every event to be applied",
          Effect.map(
            sums,
            ({ applied, mailed, marks, queued }) =>
              queued === 0 && applied === 2 * payments && marks === 4 * 2 * payments && mailed > 0
          )
        )

        const result = yield* sums
        const expected = ["EUR", "USD"]
          .map(
            (currency) =>
              `${currency} ${views.filter((_, index) => order(index).currency === currency).reduce((sum, view) => sum + view.totalAmountMinor, 0)}`
          )
          .join(",")
        assert.deepInclude(result, {
          paid: payments,
          orders: expected,
          captured: expected,
          charged: expected,
          revenue: expected,
          ledger: expected,
          reserved: payments,
          // One receipt for each payment. Interrupted ones are sent once their leases have expired.
          receipts: payments
        })
        assert.strictEqual(result.charges, payments)

        const versions = new Map<string, Array<number>>()
        const ids = new Set<string>()
        for (const record of yield* readTopic(2 * payments)) {
          const event = decodeValue(record.value)
          if (ids.has(event.eventId)) continue
          ids.add(event.eventId)
          versions.set(event.aggregateId, [...(versions.get(event.aggregateId) ?? []), event.aggregateVersion])
        }
        assert.strictEqual(versions.size, payments)
        for (const [id, list] of versions) assert.deepStrictEqual(list, [1, 2], id)
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
    300_000
  )

  it.live(`${name}: SIGTERM stops the service cleanly, and nothing is published twice because of it`, () =>
    Effect.gen(function* () {
      const { env, readTopic } = yield* target
      for (let round = 0; round < 2; round++) {
        const service = yield* start(env)
        for (let index = 0; index < 10; index++) {
          yield* request(service.url!, "/orders", order(index))
        }
        yield* service.signal("SIGTERM")
        assert.strictEqual(yield* service.exit, 0, service.output())
      }
      const last = yield* start(env)
      yield* eventually(
        "the queue to drain",
        Effect.map(queueLength, (queued) => queued === 0)
      )
      const records = yield* readTopic(20)
      assert.strictEqual(records.length, 20)
      yield* last.signal("SIGINT")
      assert.strictEqual(yield* last.exit, 0, last.output())
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )
}

const queueLength = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return (yield* sql`SELECT 1 AS one FROM outbox_events`).length
})
