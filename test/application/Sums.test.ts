/** The sums over the last orders, of orders that are placed, paid and refunded through the use cases. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Sums } from "../../src/application/views/Sums.ts"
import { Subscribers } from "../../src/application/Timeline.ts"
import { idAt } from "../support/SqlIds.ts"
import { pay, payUnanswered, place, recover, refund, test } from "./World.ts"

const sumsOf = (seconds: number) =>
  Sums.use((sums) => sums.of(seconds)).pipe(
    Effect.provide(Sums.layer.pipe(Layer.provide(Layer.succeed(Subscribers, { names: ["billing", "receipts"] })))),
    Effect.map(({ areAll, books, changes, dead, discarded, effects, orders, published, underWay, waiting }) => ({
      areAll,
      books,
      changes,
      dead,
      discarded,
      effects,
      orders,
      published,
      underWay,
      waiting
    }))
  )

test("changes, events, effects and money of the last orders are counted apart: published, waiting, dead, and under way", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [paid, other] = [yield* place, yield* place]
    yield* pay(paid, "k")
    yield* payUnanswered(gateway, other, "after charge")
    const given = yield* place
    yield* pay(given, "k")
    yield* recover((yield* refund(given)).paymentId)

    const before = {
      orders: 3,
      areAll: true,
      // Three are placed, two are paid, one of these is refunded.
      changes: 6,
      published: 0,
      waiting: 6,
      dead: 0,
      discarded: 0,
      underWay: 1,
      effects: [
        { consumer: "billing", applied: 0, givenUp: 0 },
        { consumer: "receipts", applied: 0, givenUp: 0 }
      ],
      books: [{ currency: "EUR", paidMinor: "100", capturedMinor: "100", bookedMinor: "0" }]
    }
    assert.deepStrictEqual(yield* sumsOf(60), before)

    // As the dispatcher, the broker and billing leave it behind.
    yield* sql`
      WITH sent AS (DELETE FROM outbox_events WHERE aggregate_id = ${paid} RETURNING *)
      INSERT INTO event_log
      SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data,
             0, 0, clock_now() FROM sent`
    yield* sql`INSERT INTO consumer_cursors VALUES ('billing', ${paid}, 'Order', 2)`
    yield* sql`
      INSERT INTO billing_ledger SELECT event_id, ${paid}::uuid, ${paid}::uuid, 'gateway', 'sales', 100, 'EUR', occurred_at, occurred_at
      FROM event_log WHERE event_type = 'OrderPaid'`
    assert.deepStrictEqual(yield* sumsOf(60), {
      ...before,
      published: 2,
      waiting: 4,
      effects: [{ consumer: "billing", applied: 2, givenUp: 0 }, before.effects[1]!],
      books: [{ ...before.books[0]!, bookedMinor: "100" }]
    })

    // The order's first event never came, and an operator skipped it: billing has passed it without an effect.
    yield* sql`
      INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
      SELECT clock_now(), 'ada', 'skip', 'it is gone', 'inbox event', 'billing ' || event_id, '{"version": 0}', '{"version": 1}'
      FROM event_log WHERE aggregate_id = ${paid} AND aggregate_version = 2`
    assert.deepStrictEqual((yield* sumsOf(60)).effects[0], { consumer: "billing", applied: 1, givenUp: 1 })
  }))

test("older orders are left out, and of more than 2,000 the newest are looked at", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const insert = (count: number, at: string) => sql`
      INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
      SELECT ${sql.literal(idAt(at))}, 'eve', 'EUR', 'paid', 1, 100, ${sql.literal(at)}, clock_now() FROM generate_series(1, ${count}::int4)`
    yield* insert(10, "clock_now() - interval '2 hours'")
    const none = yield* sumsOf(3_600)
    assert.deepInclude(none, { orders: 0, changes: 0, areAll: true, books: [] })
    yield* insert(2_001, "clock_now()")
    assert.deepInclude(yield* sumsOf(3_600), {
      orders: 2_000,
      changes: 2_000,
      areAll: false,
      books: [{ currency: "EUR", paidMinor: "200000", capturedMinor: "0", bookedMinor: "0" }]
    })
  }))
