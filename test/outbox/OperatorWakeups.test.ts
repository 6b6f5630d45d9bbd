/** An operator's decision about a refused event wakes the lane's owner, once the change is visible to it. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Wakeups from "../support/Wakeups.ts"
import * as Lanes from "../support/Lanes.ts"

/** An operator's process without a dispatcher. It sends wake-ups to the others. */
const process = Layer.mergeAll(Parking.layer, OutboxDeadLetters.layer).pipe(
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const lane = laneOf("poison")
const operator = { actor: "ada", reason: "the limit was raised" }

const audited = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{
    readonly action: string
  }>`SELECT action FROM operator_audit WHERE actor = ${operator.actor} ORDER BY audit_id`
  return rows.map(({ action }) => action).join(" ") || "nothing"
})

/** One wake-up for the lane's holds, and one for its queue. */
const bothAfter = (visible: string) => [`holds ${lane}: ${visible}`, `outbox ${lane}: ${visible}`]

/** Two events of `poison`, the first of which the broker refuses. The settings decide what follows. */
const refuse = Effect.gen(function* () {
  yield* Refusals.append("poison", 1, 2)
  const [event] = yield* Lanes.fetch(yield* Queue, lane)
  yield* (yield* Holds).hold(lane, event!, Refusals.rejection)
  return event!.eventId
})

const settings = (given: { readonly maxAttempts: number; readonly skipTopics?: ReadonlyArray<string> }) =>
  Layer.succeed(Parking.HoldSettings, { retryBaseMillis: 50_000_000, skipTopics: [], ...given })
const retrying = settings({ maxAttempts: 3 })
const dead = settings({ maxAttempts: 1 })
const skipped = settings({ maxAttempts: 1, skipTopics: ["counters"] })

for (const { event, holds } of [
  { event: "an event that is being retried", holds: retrying },
  { event: "a dead letter", holds: dead },
  { event: "a dead letter that its aggregate has gone on without", holds: skipped }
]) {
  it.live(`a retry of ${event} wakes its lane's owner after the commit`, () =>
    Effect.gen(function* () {
      const eventId = yield* refuse
      const heard = yield* Wakeups.listen(["holds", "outbox"], audited)
      const letters = yield* OutboxDeadLetters
      assert.isTrue((yield* letters.retry(eventId, operator)).changed)
      assert.deepStrictEqual(yield* heard, bothAfter("retry"))
    }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(holds))
  )
}

it.live("a retry of all dead letters wakes the owner of each after the commit", () =>
  Effect.gen(function* () {
    yield* refuse
    const heard = yield* Wakeups.listen(["holds", "outbox"], audited)
    assert.strictEqual((yield* (yield* OutboxDeadLetters).retryAll({}, operator)).retried, 1)
    assert.deepStrictEqual(yield* heard, bothAfter("retry"))
  }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(dead))
)

for (const { event, holds } of [
  { event: "an event that is being retried", holds: retrying },
  { event: "a dead letter", holds: dead }
]) {
  it.live(`a discard of ${event} wakes its lane's owner after the commit, for the events parked behind it`, () =>
    Effect.gen(function* () {
      const eventId = yield* refuse
      const heard = yield* Wakeups.listen(["holds", "outbox"], audited)
      const letters = yield* OutboxDeadLetters
      assert.isTrue((yield* letters.discard(eventId, operator)).changed)
      assert.deepStrictEqual(yield* heard, bothAfter("discard"))
      // Nothing has changed, so no wake-up is needed.
      assert.isFalse((yield* letters.discard(eventId, operator)).changed)
      assert.deepStrictEqual(yield* heard, [])
    }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(holds))
  )
}
