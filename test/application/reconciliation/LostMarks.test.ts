/** A consumer's mark is deleted, or its cursor is moved ahead: both are named and mended, and no right book is made wrong by it. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { recover, refund } from "../World.ts"
import { agreeing, brokenIn, deliver, look, repair, subscribers, test } from "./Books.ts"

const revenue = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly amount: string }>`SELECT amount_minor::text AS amount FROM revenue_daily`
)

const unmark = (consumer: string, orderId: string, version: number) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`
      DELETE FROM processed_events WHERE consumer_name = ${consumer} AND event_id =
        (SELECT event_id FROM event_log WHERE aggregate_id = ${orderId} AND aggregate_version = ${version}::int4)`
  )

const moveAhead = (consumer: string, orderId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`UPDATE consumer_cursors SET version = 9 WHERE consumer_name = ${consumer} AND aggregate_id = ${orderId}`
  )

const cursorOf = (consumer: string, orderId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`SELECT version FROM consumer_cursors WHERE consumer_name = ${consumer} AND aggregate_id = ${orderId}`
  )

for (const { name } of subscribers) {
  test(
    `a mark of ${name} that is gone is named and written again, and the revenue stays`,
    Effect.gen(function* () {
      const { paid } = yield* agreeing
      const before = yield* revenue
      yield* unmark(name, paid.orderId, 2)
      const found = yield* look
      assert.deepStrictEqual(brokenIn(found), { "mark-lost": 1 })
      assert.deepInclude(found.items[0], {
        orderId: paid.orderId,
        expected: `a mark of ${name}, whose cursor has passed version 2`,
        found: "no mark of OrderPaid"
      })
      assert.strictEqual((yield* repair).repaired, 1)
      assert.deepStrictEqual(yield* revenue, before)
      assert.deepStrictEqual(brokenIn(yield* look), {})
      assert.strictEqual((yield* repair).repaired, 0)
    })
  )

  test(
    `a cursor of ${name} ahead of its order is set back, and the next event is applied`,
    Effect.gen(function* () {
      const { paid } = yield* agreeing
      yield* moveAhead(name, paid.orderId)
      const found = yield* look
      assert.deepStrictEqual(brokenIn(found), { "cursor-ahead": 1 })
      assert.deepInclude(found.items[0], {
        orderId: paid.orderId,
        expected: "no cursor past version 2",
        found: `${name} at version 9`
      })
      // The refund's event is on its way: it is still to be applied.
      yield* recover((yield* refund(paid.orderId)).paymentId)
      assert.strictEqual((yield* repair).repaired, 1)
      assert.deepStrictEqual(yield* cursorOf(name, paid.orderId), [{ version: 2 }])
      yield* deliver
      assert.deepStrictEqual(yield* cursorOf(name, paid.orderId), [{ version: 3 }])
      assert.deepStrictEqual(brokenIn(yield* look), {})
    })
  )

  test(
    `an event that ${name} has dropped behind a cursor that was ahead gets its effect`,
    Effect.gen(function* () {
      const { paid } = yield* agreeing
      yield* moveAhead(name, paid.orderId)
      yield* recover((yield* refund(paid.orderId)).paymentId)
      yield* deliver
      const effect = {
        analytics: "revenue-differs",
        billing: "billing-entry-missing",
        inventory: "reservation-left-over",
        receipts: "mail-missing"
      }[name]
      assert.deepStrictEqual(brokenIn(yield* look), { "cursor-ahead": 1, "mark-lost": 1, [effect!]: 1 })
      assert.strictEqual((yield* repair).repaired, 3)
      assert.deepStrictEqual(brokenIn(yield* look), {})
      assert.deepStrictEqual(yield* cursorOf(name, paid.orderId), [{ version: 3 }])
      assert.deepStrictEqual(yield* revenue, [{ amount: "0" }])
    })
  )
}

test(
  "of cursors of several consumers ahead of one order a person decides: after a restore the order is behind",
  Effect.gen(function* () {
    const { paid } = yield* agreeing
    yield* moveAhead("analytics", paid.orderId)
    yield* moveAhead("billing", paid.orderId)
    const { items, repaired } = yield* repair
    assert.strictEqual(repaired, 0)
    assert.match(items[0]?.repair?.why ?? "", /several consumers are ahead: .* paid-once roll-forward/)
    assert.deepStrictEqual(brokenIn(yield* look), { "cursor-ahead": 1 })
  })
)

for (const before of [0, 1]) {
  test(
    `without cursor and mark of an event, and ${before} marks before it, no repair takes its amount off the revenue`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { paid } = yield* agreeing
      const right = yield* revenue
      yield* sql`DELETE FROM consumer_cursors WHERE consumer_name = 'analytics' AND aggregate_id = ${paid.orderId}`
      yield* unmark("analytics", paid.orderId, 2)
      if (before === 0) yield* unmark("analytics", paid.orderId, 1)
      const { items } = yield* repair
      const one = items.find(({ rule }) => rule === "revenue-differs")
      assert.strictEqual(one?.repair?.outcome, "manual")
      assert.match(one?.repair?.why ?? "", /no cursor at 1 event of the day/)
      assert.deepStrictEqual(yield* revenue, right)
      // As it says: a person sets the cursor. The rest follows.
      yield* sql`
        INSERT INTO consumer_cursors VALUES ('analytics', ${paid.orderId}, 'Order', 2)
        ON CONFLICT (consumer_name, aggregate_id, aggregate_type) DO UPDATE SET version = excluded.version`
      assert.deepStrictEqual(brokenIn(yield* repair), {})
      assert.deepStrictEqual(yield* revenue, right)
      assert.deepStrictEqual(brokenIn(yield* look), {})
    })
  )
}
