/** An event that lies behind a consumer's place in its partition, and was never applied, is named. One that may still come is not. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { agreeing, brokenIn, look, test } from "./Books.ts"

/** Books whose events lie one behind another in a partition, and a consumer that has neither a mark nor a cursor nor an effect of the first. */
const unread = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { pending } = yield* agreeing
  yield* sql`
    UPDATE event_log AS e SET broker_offset = placed.place
    FROM (SELECT event_id, row_number() OVER (ORDER BY aggregate_id <> ${pending}, event_id) AS place FROM event_log) AS placed
    WHERE placed.event_id = e.event_id`
  assert.deepStrictEqual(brokenIn(yield* look), {})
  yield* sql`
    DELETE FROM processed_events WHERE consumer_name = 'inventory'
      AND event_id = (SELECT event_id FROM event_log WHERE aggregate_id = ${pending})`
  yield* sql`DELETE FROM consumer_cursors WHERE consumer_name = 'inventory' AND aggregate_id = ${pending}`
  yield* sql`DELETE FROM inventory_reservations WHERE order_id = ${pending}::uuid`
  return pending
})

test(
  "an event that a consumer has gone past in its partition, without mark and cursor, is named",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const pending = yield* unread
    const { items } = yield* look
    assert.deepStrictEqual(
      items.map(({ expected, found, orderId, rule }) => [rule, orderId, expected, found]),
      [
        [
          "event-skipped",
          pending,
          "OrderPlaced applied by inventory, which has applied offset 10 of partition 0",
          "no mark and no cursor at version 1, from offset 1"
        ]
      ]
    )
    // A decision, or a hold, says why.
    yield* sql`
      INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset, record_headers, parked_at,
                                      status, attempts, history, ended_at)
      SELECT 'inventory', aggregate_id, aggregate_version, event_id, topic, 0, 0, '{}', clock_now(), 'discarded', 1, '[]', clock_now()
      FROM event_log WHERE aggregate_id = ${pending}`
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "an event that was sent twice, and applied at its first place, does not tell how far a consumer is",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* unread
    assert.deepStrictEqual(brokenIn(yield* look), { "event-skipped": 1 })
    yield* sql`UPDATE event_log SET published_at = published_at + interval '1 minute'`
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

for (const [why, change] of [
  ["it is the newest of its partition", "broker_offset = 99"],
  ["it is alone in its partition", "broker_partition = 1"],
  ["the topic was made anew, and begins at 0 again", "published_at = clock_now() + interval '1 hour'"]
] as const) {
  test(
    `an event that a consumer has not read is no difference while ${why}`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const pending = yield* unread
      assert.deepStrictEqual(brokenIn(yield* look), { "event-skipped": 1 })
      yield* sql`UPDATE event_log SET ${sql.literal(change)} WHERE aggregate_id = ${pending}`
      assert.deepStrictEqual(brokenIn(yield* look), {})
    })
  )
}
