/** Coalescing slices: which share a transaction, and which must not wait for each other. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Queue } from "effect"
import { TestClock } from "effect/testing"
import type { BrokerUnavailable, Slice } from "../../../src/brokers/Broker.ts"
import { ApplySlice } from "../../../src/inbox/ApplySlice.ts"
import type { Subscriber } from "../../../src/inbox/Subscriber.ts"
import * as CoalescedSlices from "../../../src/postgres/fast/CoalescedSlices.ts"

/** A slice of that many records. */
const sliceOf = (partition: number, records = 1): Slice => {
  const record = { offset: 0n, key: null, value: null, headers: {} }
  return {
    topic: "test",
    partition,
    records: [record, ...Array.from({ length: records - 1 }, () => record)],
    commit: Effect.void
  }
}

/** A coalescer whose transactions the test ends. */
const make = Effect.gen(function* () {
  const begun = yield* Queue.unbounded<{
    readonly partitions: ReadonlyArray<number>
    readonly end: Deferred.Deferred<void, string>
  }>()
  const hand = yield* CoalescedSlices.make<string>({
    apply: (slices) =>
      Effect.gen(function* () {
        const end = yield* Deferred.make<void, string>()
        yield* Queue.offer(begun, { partitions: slices.map(({ partition }) => partition), end })
        yield* Deferred.await(end)
      }),
    maxRecords: 10,
    sideBySide: 4
  })
  /** Hands a slice over, and waits until the coalescer has it. */
  const give = (partition: number, records?: number) =>
    Effect.tap(Effect.forkChild(hand(sliceOf(partition, records))), () => Effect.yieldNow)
  /** The next transaction, after the coalescer has waited for the running one. */
  const next = Effect.andThen(TestClock.adjust("20 millis"), Queue.take(begun))
  return { give, next, none: Effect.andThen(TestClock.adjust("20 millis"), Queue.size(begun)) }
})

const succeed = (transaction: { readonly end: Deferred.Deferred<void, string> }) =>
  Deferred.succeed(transaction.end, undefined)

it.effect("slices that come while a transaction is running share the next one", () =>
  Effect.gen(function* () {
    const { give, next } = yield* make
    const one = yield* give(1)
    const first = yield* next
    assert.deepStrictEqual(first.partitions, [1])
    const others = [yield* give(2), yield* give(3)]
    yield* succeed(first)
    yield* Fiber.join(one)
    const second = yield* next
    assert.deepStrictEqual(second.partitions, [2, 3])
    yield* succeed(second)
    yield* Effect.forEach(others, Fiber.join)
  }).pipe(Effect.scoped)
)

it.effect("a slice that comes after a pause waits for nothing", () =>
  Effect.gen(function* () {
    const begun = yield* Deferred.make<void>()
    const hand = yield* CoalescedSlices.make({
      apply: () => Deferred.succeed(begun, undefined),
      maxRecords: 10,
      sideBySide: 4
    })
    // The test clock stands still.
    yield* hand(sliceOf(1))
    assert.isTrue(yield* Deferred.isDone(begun))
  }).pipe(Effect.scoped)
)

it.effect("no slice waits for a transaction that hangs, and a full slice shares none", () =>
  Effect.gen(function* () {
    const { give, next } = yield* make
    yield* give(1)
    yield* next
    const full = [yield* give(2, 7), yield* give(3, 7)]
    const transactions = [yield* next, yield* next]
    assert.deepStrictEqual(
      transactions.map(({ partitions }) => partitions),
      [[2], [3]]
    )
    yield* Effect.forEach(transactions, succeed)
    yield* Effect.forEach(full, Fiber.join)
  }).pipe(Effect.scoped)
)

it.effect(
  "only a slice that fails alone is reported as failed, and its partition goes alone until a slice succeeds",
  () =>
    Effect.gen(function* () {
      const { give, next } = yield* make
      yield* give(1)
      const first = yield* next
      const [bad, good] = [yield* give(2), yield* give(3)]
      yield* succeed(first)
      const together = yield* next
      assert.deepStrictEqual(together.partitions, [2, 3])
      yield* Deferred.fail(together.end, "one of them")
      const again = [yield* next, yield* next]
      assert.deepStrictEqual(
        again.flatMap(({ partitions }) => partitions).toSorted((a, b) => a - b),
        [2, 3]
      )
      for (const transaction of again) {
        yield* transaction.partitions[0] === 2 ? Deferred.fail(transaction.end, "it is this one") : succeed(transaction)
      }
      assert.deepStrictEqual(yield* Fiber.await(bad), Exit.fail("it is this one"))
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(good)))

      const blocker = yield* give(4)
      const fourth = yield* next
      yield* Effect.forEach([2, 3, 5], (partition) => give(partition))
      yield* succeed(fourth)
      yield* Fiber.join(blocker)
      const [alone, rest] = [yield* next, yield* next]
      assert.deepStrictEqual(alone.partitions, [2])
      assert.deepStrictEqual(rest.partitions, [3, 5])
    }).pipe(Effect.scoped)
)

it.effect("a common transaction that hangs is given up, and its slices are applied one by one", () =>
  Effect.gen(function* () {
    const { give, next } = yield* make
    yield* give(1)
    const first = yield* next
    const others = [yield* give(2), yield* give(3)]
    yield* succeed(first)
    yield* next
    yield* TestClock.adjust("2 seconds")
    const again = [yield* next, yield* next]
    assert.deepStrictEqual(
      again.flatMap(({ partitions }) => partitions).toSorted((a, b) => a - b),
      [2, 3]
    )
    yield* Effect.forEach(again, succeed)
    yield* Effect.forEach(others, Fiber.join)
  }).pipe(Effect.scoped)
)

it.effect("a slice that is taken back while it waits is not applied", () =>
  Effect.gen(function* () {
    const { give, next, none } = yield* make
    yield* give(1)
    const first = yield* next
    const lost = yield* give(2)
    yield* Fiber.interrupt(lost)
    yield* succeed(first)
    assert.strictEqual(yield* none, 0)
  }).pipe(Effect.scoped)
)

it.effect("slices of lost partitions are rolled back, and take no permit from the others", () =>
  Effect.gen(function* () {
    const begun: Array<number> = []
    const hand = yield* CoalescedSlices.make({
      apply: ([{ partition }]) =>
        Effect.andThen(
          Effect.sync(() => begun.push(partition)),
          partition === 0 ? Effect.never : Effect.void
        ),
      maxRecords: 10,
      sideBySide: 4
    })
    for (let rebalance = 0; rebalance < 5; rebalance++) {
      const lost = yield* Effect.forkChild(hand(sliceOf(0)))
      yield* TestClock.adjust("20 millis")
      yield* Fiber.interrupt(lost)
    }
    const other = yield* Effect.forkChild(hand(sliceOf(1)))
    yield* TestClock.adjust("20 millis")
    yield* Fiber.join(other)
    assert.deepStrictEqual(begun, [0, 0, 0, 0, 0, 1])
  }).pipe(Effect.scoped)
)

it.effect("a partition whose slices take long delays others once", () =>
  Effect.gen(function* () {
    const { give, next } = yield* make
    const round = Effect.gen(function* () {
      const blocker = yield* give(1)
      const first = yield* next
      const others = [yield* give(2), yield* give(3)]
      yield* succeed(first)
      yield* Fiber.join(blocker)
      return others
    })
    const others = yield* round
    yield* next
    yield* TestClock.adjust("2 seconds")
    const again = [yield* next, yield* next]
    yield* succeed(again.find(({ partitions }) => partitions[0] === 3)!)
    yield* TestClock.adjust("2 seconds")
    yield* succeed(again.find(({ partitions }) => partitions[0] === 2)!)
    yield* Effect.forEach(others, Fiber.join)
    yield* round
    assert.deepStrictEqual(
      [yield* next, yield* next].map(({ partitions }) => partitions),
      [[2], [3]]
    )
  }).pipe(Effect.scoped)
)

it.effect("as a layer it coalesces the slices of each consumer, and never those of two", () =>
  Effect.gen(function* () {
    const begun: Array<string> = []
    const firstEnds = yield* Deferred.make<void>()
    /** Notes the consumer and the partitions of each transaction. The first one of each consumer ends with `firstEnds`. */
    const note = ({ name }: Subscriber, slices: ReadonlyArray<Slice>) =>
      Effect.suspend(() => {
        begun.push(`${name}: ${slices.map(({ partition }) => partition).join(" ")}`)
        return slices.some(({ partition }) => partition === 0) ? Deferred.await(firstEnds) : Effect.void
      })
    const plain = Layer.succeed(ApplySlice, {
      run: (subscriber, slice) => note(subscriber, [slice]),
      runTogether: note
    })
    yield* Effect.gen(function* () {
      const { run } = yield* ApplySlice
      const subscribers = ["one", "two"].map((name): Subscriber => ({
        name,
        topic: "test",
        firstSight: "any-version",
        handle: () => Effect.void
      }))
      const fibers: Array<Fiber.Fiber<void, BrokerUnavailable>> = []
      for (const partition of [0, 1, 2]) {
        for (const subscriber of subscribers) {
          fibers.push(yield* Effect.forkChild(run(subscriber, sliceOf(partition))))
          yield* Effect.yieldNow
        }
        if (partition === 0) yield* TestClock.adjust("5 millis")
      }
      yield* Deferred.succeed(firstEnds, undefined)
      yield* TestClock.adjust("20 millis")
      yield* Effect.forEach(fibers, Fiber.join)
    }).pipe(Effect.provide(Layer.provide(CoalescedSlices.layer({ sideBySide: 4 }), plain)))
    assert.deepStrictEqual(begun.toSorted(), ["one: 0", "one: 1 2", "two: 0", "two: 1 2"])
  })
)
