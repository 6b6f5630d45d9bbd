/** The view `outbox_status`: every event in exactly one row, with the state that an operator acts on. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

/** A writer and the steps of holds, without a dispatcher. */
const process = Layer.mergeAll(Parking.layer, OutboxDeadLetters.layer).pipe(
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** The broker refuses the aggregate's first event. */
const refuse = Effect.fnUntraced(function* (id: string) {
  const [event] = yield* Lanes.fetch(yield* Queue, laneOf(id))
  yield* (yield* Holds).hold(laneOf(id), event!, Refusals.rejection)
})

const rowsOf = Effect.fnUntraced(function* (id: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly row: string }>`
    SELECT concat_ws(' ', aggregate_version, status, attempts, CASE WHEN next_attempt_at IS NOT NULL THEN 'due' END, left(last_error, 7)) AS row
    FROM outbox_status WHERE aggregate_id = ${id} ORDER BY aggregate_version`
  return rows.map(({ row }) => row)
})

it.live("an event behind a refused one is parked, whether or not it has left the queue yet", () =>
  Effect.gen(function* () {
    yield* Refusals.append("fine", 1, 1)
    assert.deepStrictEqual(yield* rowsOf("fine"), ["1 queued 0"])
    yield* Refusals.append("poison", 1, 2)
    yield* refuse("poison")
    // The second event was parked together with the first one. The third one is still in the queue, since no dispatcher has fetched it.
    yield* Refusals.append("poison", 3, 1)
    assert.deepStrictEqual(yield* Counters.queuedVersions("poison"), [3])
    const [retrying, ...parked] = yield* rowsOf("poison")
    assert.match(retrying ?? "", /^1 retrying 1 due .+/)
    assert.deepStrictEqual(parked, ["2 parked 0", "3 parked 0"])
  }).pipe(Effect.provide(process), Effect.provide(Refusals.soon()))
)

it.live("a refused event is dead after its last attempt, then discarded, and a published one has left the queue", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* Refusals.append("poison", 1, 2)
    yield* refuse("poison")
    const states = Effect.map(Refusals.statesOf("poison"), (rows) => rows.map(({ status }) => status))
    assert.deepStrictEqual(yield* states, ["dead", "parked"])
    const letters = yield* OutboxDeadLetters
    yield* letters.discard(yield* Refusals.idOf("poison", "dead"), { actor: "ada", reason: "it is a test" })
    assert.deepStrictEqual(yield* states, ["discarded", "queued"])
    const queue = yield* Queue
    const events = yield* Lanes.fetch(queue, laneOf("poison"), [])
    yield* Lanes.mark(queue, laneOf("poison"), events, { partition: 3, baseOffset: 7n })
    assert.deepStrictEqual(yield* states, ["discarded", "published"])
    const [published] = yield* sql`
      SELECT broker_partition AS partition, broker_offset AS "offset" FROM outbox_status WHERE status = 'published'`
    assert.deepStrictEqual(published, { partition: 3, offset: 7n })
  }).pipe(Effect.provide(process), Effect.provide(Refusals.soon({ maxAttempts: 1 })))
)
