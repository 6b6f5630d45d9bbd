/** `AppliedEvents`: a timeline's answer about an event stays true after retention has dropped the event's mark. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, idOf, makePartition, makeSubscriber, record } = Deliveries

const upTo = (version: number) => Array.from({ length: version }, (_, index) => index + 1)
const operator = { actor: "test", reason: "it is a test" }

/** The versions that the consumer is reported to have applied. */
const toldOf = (consumer: string, id: string, versions: ReadonlyArray<number>) =>
  Effect.gen(function* () {
    const { applied } = yield* AppliedEvents
    const events = versions.map((version) => ({ eventId: idOf(id, version), version }))
    const pairs = yield* applied(["one", "two"], id, events)
    return versions.filter((version) => pairs.has(`${consumer} ${idOf(id, version)}`))
  })

it.live("a version that an operator skipped is never reported as applied, also not when it comes later", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { retryHeld } = yield* HoldRetries
    const one = makeSubscriber("one").subscriber
    const two = makeSubscriber("two").subscriber
    const records = [record("a", 1), record("a", 4), record("a", 5)]
    const partition = makePartition()
    yield* deliver(one, partition.slice(records))
    yield* letters.skip("one", idOf("a", 4), operator)
    yield* retryHeld(one)
    yield* deliver(one, partition.slice([record("a", 2), record("a", 3)]))
    yield* deliver(two, makePartition().slice(upTo(5).map((version) => record("a", version))))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 4, 5])
    assert.deepStrictEqual(yield* toldOf("one", "a", upTo(5)), [1, 4, 5])
    yield* Deliveries.dropMarks
    assert.deepStrictEqual(yield* toldOf("one", "a", upTo(5)), [1, 4, 5])
    // The other consumer has applied all versions.
    assert.deepStrictEqual(yield* toldOf("two", "a", upTo(5)), upTo(5))
  }).pipe(Effect.provide(Deliveries.process))
)

for (const status of ["discarded", "dead"] as const) {
  it.live(`an event that is ${status} in the outbox is never reported as applied, whatever later events were`, () =>
    Effect.gen(function* () {
      const letters = yield* InboxDeadLetters
      const { retryHeld } = yield* HoldRetries
      const { subscriber } = makeSubscriber("one")
      yield* Deliveries.buryInOutbox("a", 2, status)
      yield* deliver(subscriber, makePartition().slice([record("a", 1), record("a", 3)]))
      // No consumer waits for a discarded event. A dead one blocks until an operator decides.
      if (status === "dead") {
        yield* letters.skip("one", idOf("a", 3), operator)
        yield* retryHeld(subscriber)
      }
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 3])
      assert.deepStrictEqual(yield* toldOf("one", "a", upTo(3)), [1, 3])
      yield* Deliveries.dropMarks
      assert.deepStrictEqual(yield* toldOf("one", "a", upTo(3)), [1, 3])
      // The archive has dropped the event that followed the skip, and the dead letter stays.
      assert.deepStrictEqual(yield* toldOf("one", "a", [2]), [])
    }).pipe(Effect.provide(Deliveries.process))
  )
}
