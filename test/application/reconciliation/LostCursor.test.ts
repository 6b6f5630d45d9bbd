/** A consumer's cursor is deleted or set back, and its marks stay: it is named, and set again, before a rebuild leaves an order out. */
import { assert } from "@effect/vitest"
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { analyticsProjection } from "../../../src/application/subscribers/Analytics.ts"
import { Rebuild } from "../../../src/operations/rebuild/Rebuild.ts"
import { pay, place } from "../World.ts"
import { agreeing, brokenIn, deliver, look, publish, repair, repairs, test } from "./Books.ts"

const cursors = (orderId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`SELECT consumer_name AS consumer, version FROM consumer_cursors WHERE aggregate_id = ${orderId} ORDER BY consumer_name`
  )

/** Rows that a rebuild of analytics has changed. */
const rebuild = Effect.gen(function* () {
  const client = yield* PgClient.PgClient
  const { tables } = yield* Rebuild.use(({ run }) =>
    run(analyticsProjection, { actor: "ada", reason: "a test" }, () => Effect.void)
  ).pipe(Effect.provide(Layer.provide(Rebuild.layer, Layer.succeed(PgClient.PgClient, client))))
  return tables.reduce((sum, { added, changed, removed }) => sum + added + changed + removed, 0)
})

test(
  "a cursor that is gone is named, and set again: then a rebuild and the reconciliation agree",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid } = yield* agreeing
    const before = yield* cursors(paid.orderId)
    yield* sql`DELETE FROM consumer_cursors WHERE consumer_name = 'analytics' AND aggregate_id = ${paid.orderId}`
    assert.isAbove(yield* rebuild, 0, "the order is left out")

    const found = yield* look
    assert.deepStrictEqual(brokenIn(found), { "cursor-lost": 1, "revenue-differs": 1 })
    assert.deepInclude(
      found.items.find(({ rule }) => rule === "cursor-lost"),
      {
        orderId: paid.orderId,
        expected: "a cursor of analytics at version 2, which it has applied",
        found: "no cursor"
      }
    )
    assert.strictEqual((yield* repair).repaired, 2)
    assert.deepInclude((yield* repairs)[0], { subject: "order", rule: "cursor-lost" })
    assert.deepStrictEqual(yield* cursors(paid.orderId), before)
    assert.strictEqual(yield* rebuild, 0)
    assert.deepStrictEqual(brokenIn(yield* look), {})
    assert.strictEqual((yield* repair).repaired, 0)
  })
)

test(
  "a cursor behind its marks is named for each consumer, and set again",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { refunded } = yield* agreeing
    const before = yield* cursors(refunded.orderId)
    yield* sql`UPDATE consumer_cursors SET version = 1 WHERE consumer_name IN ('billing', 'receipts') AND aggregate_id = ${refunded.orderId}`
    const found = yield* look
    assert.deepStrictEqual(brokenIn(found), { "cursor-lost": 2 })
    assert.deepStrictEqual(
      found.items.map((one) => one.found),
      ["a cursor at version 1", "a cursor at version 1"]
    )
    assert.strictEqual((yield* repair).repaired, 2)
    assert.deepStrictEqual(yield* cursors(refunded.orderId), before)
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "an event that is not applied stays so: the cursor is set to the last mark, and no further",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* agreeing
    const orderId = yield* place
    yield* deliver
    yield* sql`DELETE FROM consumer_cursors WHERE consumer_name = 'billing' AND aggregate_id = ${orderId}`
    yield* pay(orderId, orderId)
    // Published, and applied by no consumer yet.
    yield* publish
    assert.deepStrictEqual(brokenIn(yield* look), { "cursor-lost": 1 })
    assert.strictEqual((yield* repair).repaired, 1)
    assert.deepStrictEqual(
      yield* cursors(orderId),
      ["analytics", "billing", "inventory", "receipts"].map((consumer) => ({ consumer, version: 1 }))
    )
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)
