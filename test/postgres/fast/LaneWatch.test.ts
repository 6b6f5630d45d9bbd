/** When a dispatcher looks into all its lanes by itself, and what it says to others meanwhile. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, Stream, SubscriptionRef } from "effect"
import { TestClock } from "effect/testing"
import { Dispatcher } from "../../../src/outbox/Dispatcher.ts"
import { allLanes } from "../../../src/outbox/Lane.ts"
import { LaneOwnership } from "../../../src/outbox/LaneOwnership.ts"
import { LaneWakeup } from "../../../src/outbox/LaneWakeup.ts"
import { PollRequests } from "../../../src/outbox/PollRequests.ts"
import { ControlConnection, type ControlSession } from "../../../src/platform/ControlConnection.ts"
import { Fibers } from "../../../src/platform/Supervised.ts"
import * as LaneWatch from "../../../src/postgres/fast/LaneWatch.ts"
import { quietMillis } from "../../../src/postgres/fast/WatchedLanes.ts"

/** A watch that counts its looks, and whether others were told that no wake-ups are needed. */
const start = Effect.gen(function* () {
  const seen = { looks: 0, found: 0, isTold: false }
  const answer: { taken: Effect.Effect<void, string> } = { taken: Effect.void }
  const watch = yield* LaneWatch.make({
    look: () => void seen.looks++,
    found: () => seen.found,
    tell: (isWatching) =>
      Effect.andThen(
        answer.taken,
        Effect.sync(() => void (seen.isTold = isWatching))
      )
  })
  yield* TestClock.adjust("1 minute")
  return {
    seen,
    answer,
    watch,
    wake: (count: number, isHere = false) => {
      for (let index = 0; index < count; index++) watch.woken(isHere)
    },
    looksIn: (millis: number) =>
      Effect.gen(function* () {
        const before = seen.looks
        yield* TestClock.adjust(millis)
        return seen.looks - before
      }),
    /** Time in which each look finds so many events. */
    busy: (millis: number, found: number) =>
      Effect.gen(function* () {
        for (let passed = 0; passed < millis; passed += 2) {
          yield* TestClock.adjust(2)
          seen.found += found
        }
      })
  }
}).pipe(Effect.provide(Fibers.layer))

it.effect("few wake-ups, or those of this process, begin no watch", () =>
  Effect.gen(function* () {
    const { looksIn, seen, wake } = yield* start
    for (let window = 0; window < 10; window++) {
      wake(79)
      wake(1_000, true)
      assert.strictEqual(yield* looksIn(200), 0)
    }
    assert.isFalse(seen.isTold)
  }).pipe(Effect.scoped)
)

it.effect("many wake-ups of others begin it: all lanes are looked at every two milliseconds, and others are told", () =>
  Effect.gen(function* () {
    const { busy, seen, wake } = yield* start
    wake(80)
    const before = seen.looks
    yield* busy(200, 1)
    // The first one comes at once.
    assert.strictEqual(seen.looks - before, 101)
    assert.isTrue(seen.isTold)
    yield* busy(9_800, 1)
    assert.strictEqual(seen.looks - before, 5_001)
    assert.isTrue(seen.isTold)
  }).pipe(Effect.scoped)
)

it.effect("few events end it, and the looks go on for twice as long as others may be quiet after they were told", () =>
  Effect.gen(function* () {
    const { answer, looksIn, seen, wake } = yield* start
    const unlocked = yield* Deferred.make<void>()
    wake(80)
    yield* TestClock.adjust(2)
    answer.taken = Deferred.await(unlocked)
    // The database is slow: until it has answered, others still read that no wake-up is needed.
    yield* TestClock.adjust(1_000)
    assert.strictEqual(yield* looksIn(1_000), 500)
    assert.isTrue(seen.isTold)
    yield* Deferred.succeed(unlocked, undefined)
    assert.strictEqual(yield* looksIn(4 * quietMillis), (2 * quietMillis) / 2)
    assert.isFalse(seen.isTold)
  }).pipe(Effect.scoped)
)

it.effect("events of this process don't keep it", () =>
  Effect.gen(function* () {
    const { looksIn, seen, wake } = yield* start
    wake(80)
    for (let window = 0; window < 10; window++) {
      seen.found += 1_000
      wake(1_000, true)
      yield* TestClock.adjust(200)
    }
    assert.isFalse(seen.isTold)
    assert.strictEqual(yield* looksIn(1_000), 0)
  }).pipe(Effect.scoped)
)

it.effect("a rate between the two limits neither begins nor ends it", () =>
  Effect.gen(function* () {
    const { busy, looksIn, seen, wake } = yield* start
    for (let window = 0; window < 10; window++) {
      wake(60)
      assert.strictEqual(yield* looksIn(200), 0)
    }
    wake(80)
    // 200 events a second.
    for (let window = 0; window < 20; window++) yield* Effect.andThen(busy(100, 0.5), busy(100, 0.3))
    assert.isTrue(seen.isTold)
  }).pipe(Effect.scoped)
)

it.effect("after three watches that found little there is none for ten seconds", () =>
  Effect.gen(function* () {
    const { busy, looksIn, seen, wake } = yield* start
    // A paused topic: its events wake, and are not fetched.
    for (let watch = 0; watch < 3; watch++) {
      wake(80)
      assert.isAbove(yield* looksIn(1_000), 0)
      assert.isFalse(seen.isTold)
    }
    for (let window = 0; window < 40; window++) {
      wake(200)
      assert.strictEqual(yield* looksIn(200), 0)
    }
    yield* TestClock.adjust("10 seconds")
    wake(80)
    yield* busy(2_000, 2)
    assert.isTrue(seen.isTold)
    // This one was long enough: the next one may follow it.
    yield* TestClock.adjust("1 second")
    assert.isFalse(seen.isTold)
    wake(80)
    yield* TestClock.adjust(4)
    assert.isTrue(seen.isTold)
  }).pipe(Effect.scoped)
)

it.effect("others that could not be told are told a second later, and when this process owns other lanes", () =>
  Effect.gen(function* () {
    const { answer, busy, seen, wake, watch } = yield* start
    let told = 0
    answer.taken = Effect.suspend(() => (++told === 1 ? Effect.fail("no session") : Effect.void))
    wake(80)
    yield* busy(2_000, 2)
    assert.isTrue(seen.isTold)
    const before = told
    watch.lanesChanged()
    yield* TestClock.adjust(1)
    assert.strictEqual(told, before + 1)
  }).pipe(Effect.scoped)
)

it.effect("lanes that this process has got are polled once more, when no other process is quiet any longer", () =>
  Effect.gen(function* () {
    const requested: Array<number> = []
    const parts = Layer.mergeAll(
      Layer.mock(LaneWakeup)({ onWake: () => Effect.void }),
      Layer.mock(Dispatcher)({ partitionOf: () => undefined, leave: () => undefined }),
      Layer.mock(LaneOwnership)({
        changes: Stream.make(allLanes),
        holds: () => true,
        enter: () => true,
        leave: () => undefined
      }),
      Layer.mock(PollRequests)({ after: (millis) => Effect.sync(() => void requested.push(millis)) }),
      Layer.mock(ControlConnection)({ session: yield* SubscriptionRef.make<ControlSession | undefined>(undefined) }),
      Fibers.layer
    )
    const services = yield* Layer.build(Layer.provide(LaneWatch.layer, parts))
    yield* Context.get(services, LaneWakeup).onWake(
      () => undefined,
      () => true
    )
    yield* TestClock.adjust(1)
    assert.deepStrictEqual(requested, [2 * quietMillis])
  }).pipe(Effect.scoped)
)

it.effect("others are told of its end, too, when the dispatcher stops", () =>
  Effect.gen(function* () {
    const { seen } = yield* Effect.scoped(
      Effect.gen(function* () {
        const started = yield* start
        started.wake(80)
        yield* TestClock.adjust(4)
        assert.isTrue(started.seen.isTold)
        return started
      })
    )
    assert.isFalse(seen.isTold)
  })
)
