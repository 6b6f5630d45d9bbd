/** The retry times of failed partitions, by the rules of PauseRules.ts alone. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Latch, Option, Random } from "effect"
import { TestClock } from "effect/testing"
import { BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Lane } from "../../src/outbox/Lane.ts"
import * as PauseRules from "../../src/guards/PauseRules.ts"
import * as Monotonic from "../../src/platform/Monotonic.ts"

const away = new BrokerUnavailable({ operation: "publish", cause: "away" })

it.effect("concurrent sends count as one failure, even if they fail one after the other", () =>
  Effect.gen(function* () {
    const pauses = yield* PauseRules.make({ baseMillis: 10, capMillis: 10, forgottenAfterMillis: 60_000 })
    const attempt = Effect.map(pauses.all, ([pause]) => pause?.attempt)
    const sentMillis = yield* Monotonic.millis
    for (let send = 0; send < 8; send++) {
      yield* TestClock.adjust("400 millis")
      yield* pauses.begin("orders", undefined, away, sentMillis)
    }
    assert.strictEqual(yield* attempt, 1)
    yield* TestClock.adjust("400 millis")
    yield* pauses.begin("orders", undefined, away, yield* Monotonic.millis)
    assert.strictEqual(yield* attempt, 2)
  })
)

it.effect("consecutive failures are counted although sends to the topic always overlap", () =>
  Effect.gen(function* () {
    const pauses = yield* PauseRules.make({ baseMillis: 10, capMillis: 10, forgottenAfterMillis: 60_000 })
    // Two lanes in turn. Each send takes two seconds and begins in the middle of the other lane's send.
    yield* TestClock.adjust("2 seconds")
    for (let send = 0; send < 8; send++) {
      yield* pauses.begin("orders", undefined, away, (yield* Monotonic.millis) - 2_000)
      yield* TestClock.adjust("1 second")
    }
    // A failure counts if its send began after the last counted failure: the first send, and then every second one.
    assert.deepStrictEqual(
      (yield* pauses.all).map(({ attempt }) => attempt),
      [4]
    )
  })
)

/** Three of the eight partitions, and the lanes of two of them. */
const [first, second, third] = [
  { partition: 0, count: 8 },
  { partition: 1, count: 8 },
  { partition: 2, count: 8 }
]
const [inFirst, inSecond] = [Lane.make(8), Lane.make(9)]

/** Half of the longest delay. */
const halfway = Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })

/** Rules, with a latch that every change opens. */
const makePauses = Effect.gen(function* () {
  const changed = yield* Latch.make(false)
  const rules = yield* PauseRules.make({
    baseMillis: 1_000,
    capMillis: 60_000,
    forgottenAfterMillis: 600_000,
    onChange: changed.open
  })
  return { ...rules, changed }
})

it.effect(
  "an unavailable partition is tried less and less often, whatever succeeds in the topic's other partitions",
  () =>
    Effect.gen(function* () {
      const pauses = yield* makePauses
      for (let failure = 1; failure <= 6; failure++) {
        yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
        // Lanes of other partitions do not wait.
        assert.deepStrictEqual(yield* pauses.runningIn(inSecond), [])
        yield* TestClock.adjust(1)
        yield* pauses.end("orders", second, yield* Monotonic.millis)
        // The first success ends the pause, since the whole topic may have been unavailable.
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), failure === 1 ? [] : ["orders"])
        assert.deepStrictEqual(
          (yield* pauses.all).map(({ attempt, topic }) => [topic, attempt]),
          [["orders", failure]]
        )
        assert.strictEqual((yield* pauses.nextEndMillis) ?? 1, failure === 1 ? 1 : 500 * 2 ** (failure - 1) - 1)
        yield* TestClock.adjust((yield* pauses.nextEndMillis) ?? 0)
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
      }
      yield* pauses.end("orders", first, yield* Monotonic.millis)
      assert.deepStrictEqual(yield* pauses.all, [])
    }).pipe(halfway)
)

it.effect(
  "several partitions that fail one after the other are tried less and less often, despite occasional successes",
  () =>
    Effect.gen(function* () {
      const pauses = yield* makePauses
      const parts = [0, 1, 2, 3].map((partition) => ({
        place: { partition, count: 8 },
        lane: Lane.make(8 + partition)
      }))
      let tries = 0
      for (let second = 0; second < 600; second++) {
        for (const { lane, place } of parts) {
          if ((yield* pauses.runningIn(lane)).length > 0) continue
          tries++
          yield* pauses.begin("orders", place, away, yield* Monotonic.millis)
        }
        yield* TestClock.adjust("1 second")
        yield* pauses.end("orders", { partition: 7, count: 8 }, yield* Monotonic.millis)
      }
      // Six waits of up to 16 s, then one each half minute: 25 attempts per partition. With one for each success there were 600.
      assert.isAtMost(tries, 4 * 30)
    }).pipe(halfway)
)

it.effect(
  "the first success after an outage of a whole topic ends all pauses, and a partition that fails again goes on counting",
  () =>
    Effect.gen(function* () {
      const pauses = yield* makePauses
      const fail = (place: PauseRules.Place) =>
        Effect.flatMap(Monotonic.millis, (sentMillis) => pauses.begin("orders", place, away, sentMillis))
      for (let round = 0; round < 4; round++) {
        yield* fail(first)
        yield* fail(second)
        // One send succeeds in between.
        if (round === 1) yield* pauses.end("orders", third, yield* Monotonic.millis)
        yield* TestClock.adjust("1 minute")
      }
      const sentMillis = yield* Monotonic.millis
      yield* fail(first)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
      // A send that began before that failure may have arrived before the topic became unavailable.
      yield* pauses.end("orders", second, sentMillis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
      yield* fail(second)
      yield* TestClock.adjust("1 second")
      yield* pauses.changed.close
      yield* pauses.end("orders", second, yield* Monotonic.millis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
      // Waiting lanes are woken.
      yield* pauses.changed.await
      yield* fail(first)
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [6]
      )
      yield* TestClock.adjust(1)
      yield* pauses.end("orders", second, yield* Monotonic.millis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
    }).pipe(halfway)
)

it.effect("a pause that another send to the same partition ends is announced", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    const sentMillis = yield* Monotonic.millis
    yield* pauses.begin("orders", first, away, sentMillis)
    yield* pauses.changed.close
    yield* pauses.end("orders", first, sentMillis)
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
    yield* pauses.changed.await
  })
)

it.effect("a pause without further sends is forgotten after a minute: another process owns its lanes", () =>
  Effect.gen(function* () {
    const pauses = yield* PauseRules.make({ baseMillis: 1_000, capMillis: 1_000, forgottenAfterMillis: 60_000 })
    yield* pauses.begin("orders", undefined, away, yield* Monotonic.millis)
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
    assert.isUndefined(yield* pauses.nextEndMillis)
    yield* TestClock.adjust("58 seconds")
    assert.deepStrictEqual(
      (yield* pauses.all).map(({ attempt, topic }) => [topic, attempt]),
      [["orders", 1]]
    )
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(yield* pauses.all, [])
    // The next failure counts as the first.
    yield* pauses.begin("orders", undefined, away, yield* Monotonic.millis)
    assert.deepStrictEqual(
      (yield* pauses.all).map(({ attempt }) => attempt),
      [1]
    )
    assert.isAtMost((yield* pauses.nextEndMillis) ?? 0, 1_000)
  })
)

it.effect("a send that began before the topic was back and fails after that is repeated at once", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
    yield* TestClock.adjust("2 minutes")
    const sentToFirst = yield* Monotonic.millis
    yield* TestClock.adjust(1)
    yield* pauses.end("orders", second, yield* Monotonic.millis)
    yield* TestClock.adjust(1)
    yield* pauses.changed.close
    yield* pauses.begin("orders", first, away, sentToFirst)
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
    yield* pauses.changed.await
    // Only once: a send that starts now and fails counts as a failure of its own.
    for (const failure of [2, 3]) {
      yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [failure]
      )
      yield* TestClock.adjust(1)
      yield* pauses.end("orders", second, yield* Monotonic.millis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
      yield* TestClock.adjust("1 minute")
    }
  }).pipe(halfway)
)

it.effect("a failed partition is tried by one send at a time, and two such sends run at once in all", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    for (const place of [first, second, third]) {
      yield* pauses.begin("orders", place, away, yield* Monotonic.millis)
    }
    yield* TestClock.adjust("1 minute")
    const over = yield* Deferred.make<void>()
    const sendTo = (place: PauseRules.Place) => pauses.attempt("orders", place, Deferred.await(over))
    const toFirst = yield* Effect.forkChild(sendTo(first), { startImmediately: true })
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
    assert.strictEqual((yield* Effect.flip(sendTo(first)))._tag, "TopicUnavailable")
    assert.deepStrictEqual(yield* pauses.runningIn(inSecond), [])
    const toSecond = yield* Effect.forkChild(sendTo(second), { startImmediately: true })
    assert.deepStrictEqual(yield* pauses.runningIn(Lane.make(2)), ["orders"])
    assert.strictEqual((yield* Effect.flip(sendTo(third)))._tag, "TopicUnavailable")
    // A partition that has not failed is not paused.
    assert.deepStrictEqual(yield* pauses.runningIn(Lane.make(3)), [])
    yield* pauses.attempt("orders", { partition: 3, count: 8 }, Effect.void)
    // An interrupted attempt makes room as well, and waiting lanes are woken.
    yield* pauses.changed.close
    yield* Fiber.interrupt(toSecond)
    yield* pauses.changed.await
    assert.deepStrictEqual(yield* pauses.runningIn(Lane.make(2)), [])
    yield* Deferred.succeed(over, undefined)
    yield* Fiber.join(toFirst)
    yield* sendTo(first)
  }).pipe(halfway)
)

it.effect("a partition that fails and recovers in turns does not make the others be tried as often", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    let tries = 0
    for (let elapsed = 0; elapsed < 300; elapsed++) {
      const sentMillis = yield* Monotonic.millis
      if ((yield* pauses.runningIn(inSecond)).length === 0) {
        tries++
        yield* pauses.begin("orders", second, away, sentMillis)
      }
      yield* TestClock.adjust(1)
      if (elapsed % 2 === 0) yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
      else yield* pauses.end("orders", first, yield* Monotonic.millis)
      yield* TestClock.adjust(999)
    }
    // Six waits of up to 16 s, then one each half minute, and at most one more for each of them.
    assert.isAtMost(tries, 2 * 15)
  }).pipe(halfway)
)

it.effect("a partition that waits for its attempt is not forgotten meanwhile", () =>
  Effect.gen(function* () {
    const pauses = yield* PauseRules.make({ baseMillis: 1_000, capMillis: 1_000, forgottenAfterMillis: 60_000 })
    for (const place of [first, second, third]) {
      yield* pauses.begin("orders", place, away, yield* Monotonic.millis)
    }
    yield* TestClock.adjust("2 seconds")
    for (const place of [first, second]) {
      yield* Effect.forkChild(pauses.attempt("orders", place, Effect.never), { startImmediately: true })
    }
    for (let minute = 0; minute < 3; minute++) {
      yield* TestClock.adjust("50 seconds")
      assert.deepStrictEqual(yield* pauses.runningIn(Lane.make(2)), ["orders"])
    }
    assert.strictEqual((yield* Effect.flip(pauses.attempt("orders", third, Effect.void)))._tag, "TopicUnavailable")
  }).pipe(halfway)
)

it.effect("a lane that waits for another lane's attempt is woken when an earlier send to the partition succeeds", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
    yield* TestClock.adjust("1 second")
    const sentMillis = yield* Monotonic.millis
    // The batch has arrived, and is not marked yet.
    yield* pauses.attempt("orders", first, Effect.void)
    const over = yield* Deferred.make<void>()
    yield* Effect.forkChild(pauses.attempt("orders", first, Deferred.await(over)), { startImmediately: true })
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
    yield* pauses.changed.close
    yield* TestClock.adjust(1)
    yield* pauses.end("orders", first, sentMillis)
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
    assert.isTrue(Option.isSome(yield* Effect.timeoutOption(pauses.changed.await, 0)))
  }).pipe(halfway)
)

it.effect("a wall clock that is set back makes no pause longer", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    yield* TestClock.adjust("2 hours")
    yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
    yield* TestClock.setTime(0)
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
    assert.isUndefined(yield* pauses.nextEndMillis)
  })
)
