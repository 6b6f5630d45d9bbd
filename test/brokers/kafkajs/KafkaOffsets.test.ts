/** The offsets of a member: committed together, and only by readers that still own their partitions. */
import { assert, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Fiber, Queue } from "effect"
import { TestClock } from "effect/testing"
import { KafkaJSProtocolError } from "kafkajs"
import * as KafkaOffsets from "../../../src/brokers/kafkajs/KafkaOffsets.ts"

const ownerOf = (partition: number) => {
  let lost = false
  return { partition, isLost: () => lost, lose: () => void (lost = true) }
}

/** The commit requests, which the test answers one by one. */
const make = Effect.gen(function* () {
  const requests = yield* Queue.unbounded<{
    readonly offsets: Readonly<Record<number, string>>
    readonly answer: (error?: Error) => void
  }>()
  const said: Array<boolean> = []
  const offsets = KafkaOffsets.make({
    wireTopic: "orders",
    timeoutMillis: 60_000,
    outcome: (available) => Effect.sync(() => void said.push(available))
  })
  const send: KafkaOffsets.Send = ({ topics: [topic] }) =>
    new Promise((resolve, reject) => {
      Queue.offerUnsafe(requests, {
        offsets: Object.fromEntries(topic!.partitions.map(({ offset, partition }) => [partition, offset])),
        answer: (error) => (error === undefined ? resolve() : reject(error))
      })
    })
  yield* Effect.forkScoped(offsets.run)
  const note = (owner: KafkaOffsets.Owner, offset: bigint) => Effect.sync(() => offsets.note(owner, offset, send))
  return { note, settled: offsets.settled, next: Queue.take(requests), said }
})

it.live("offsets that were noted during a request go into the next one together, the last of each partition", () =>
  Effect.gen(function* () {
    const { next, note, settled } = yield* make
    const [one, two] = [ownerOf(1), ownerOf(2)]
    yield* note(one, 5n)
    const first = yield* next
    assert.deepStrictEqual(first.offsets, { 1: "5" })
    yield* note(two, 3n)
    yield* note(one, 6n)
    yield* note(one, 7n)
    first.answer()
    const second = yield* next
    assert.deepStrictEqual(second.offsets, { 1: "7", 2: "3" })
    const waiting = yield* Effect.forkChild(settled)
    second.answer()
    yield* Fiber.join(waiting)
  }).pipe(Effect.scoped)
)

it.live("no offset is committed for a reader that has lost its partition", () =>
  Effect.gen(function* () {
    const { next, note, settled } = yield* make
    const [one, two, three] = [ownerOf(1), ownerOf(2), ownerOf(3)]
    // The partition is lost between the note of its offset and the request.
    yield* note(three, 4n)
    three.lose()
    yield* note(one, 5n)
    const first = yield* next
    assert.deepStrictEqual(first.offsets, { 1: "5" })
    yield* note(one, 6n)
    yield* note(two, 3n)
    one.lose()
    first.answer()
    const second = yield* next
    assert.deepStrictEqual(second.offsets, { 2: "3" })
    second.answer()
    yield* settled
  }).pipe(Effect.scoped)
)

it.live("an old generation loses its partitions, and its offsets are not waited for", () =>
  Effect.gen(function* () {
    const { next, note, said, settled } = yield* make
    const one = ownerOf(1)
    yield* note(one, 5n)
    const error = Object.assign(new Error("a member of a past generation"), { type: "ILLEGAL_GENERATION", code: 22 })
    ;(yield* next).answer(new KafkaJSProtocolError(error))
    yield* settled
    assert.isTrue(one.isLost())
    assert.deepStrictEqual(said, [])
  }).pipe(Effect.scoped)
)

it.effect("a commit that fails is retried, and the broker is reported unavailable", () =>
  Effect.gen(function* () {
    const { next, note, said, settled } = yield* make
    yield* note(ownerOf(1), 5n)
    const first = yield* next
    const waiting = yield* Effect.forkChild(settled)
    first.answer(new Error("no connection"))
    const told = yield* Deferred.make<void>()
    yield* Effect.forkChild(
      Effect.andThen(
        Effect.repeat(TestClock.adjust("1 seconds"), { until: () => said.length > 0 }),
        Deferred.succeed(told, undefined)
      )
    )
    yield* Deferred.await(told)
    const clock = yield* Effect.forkChild(Effect.forever(TestClock.adjust("1 seconds")))
    const again = yield* next
    yield* Fiber.interrupt(clock)
    assert.deepStrictEqual(again.offsets, { 1: "5" })
    again.answer()
    yield* Fiber.join(waiting)
    assert.deepStrictEqual(said, [false])
  }).pipe(Effect.scoped)
)

it.effect("a consumer that ends waits for no long pause after a failed commit", () =>
  Effect.gen(function* () {
    const { next, note, settled } = yield* make
    const failing = Effect.flatMap(next, ({ answer }) => Effect.sync(() => answer(new Error("no connection"))))
    yield* note(ownerOf(1), 5n)
    const clock = yield* Effect.forkChild(Effect.forever(TestClock.adjust("100 millis")))
    yield* Effect.repeat(failing, { times: 8 })
    // The clock stands still, and the pause would take seconds.
    yield* Fiber.interrupt(clock)
    const waiting = yield* Effect.forkChild(settled)
    yield* failing
    const ending = yield* Effect.forkChild(Effect.forever(TestClock.adjust("1 millis")))
    yield* Effect.repeat(failing, { times: 8 })
    const began = yield* Clock.currentTimeMillis
    const last = yield* next
    assert.isAtMost((yield* Clock.currentTimeMillis) - began, 1_000)
    last.answer()
    yield* Fiber.join(waiting)
    yield* Fiber.interrupt(ending)
  }).pipe(Effect.scoped)
)
