/** When what has failed is tried again, by the rules of PauseRules.ts alone. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option, Random } from "effect"
import { TestClock } from "effect/testing"
import { BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Lane } from "../../src/outbox/Lane.ts"
import * as PauseRules from "../../src/guards/PauseRules.ts"
import * as Monotonic from "../../src/platform/Monotonic.ts"

const away = new BrokerUnavailable({ operation: "publish", cause: "away" })

it.effect("sends that were under way together are one failure, also where they fail one after the other", () =>
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

it.effect(
  "failures in a row are counted though sends to the topic are always under way, out of step with one another",
  () =>
    Effect.gen(function* () {
      const pauses = yield* PauseRules.make({ baseMillis: 10, capMillis: 10, forgottenAfterMillis: 60_000 })
      // Two lanes in turn, each of whose sends takes two seconds and begins in the middle of the other's.
      yield* TestClock.adjust("2 seconds")
      for (let send = 0; send < 8; send++) {
        yield* pauses.begin("orders", undefined, away, (yield* Monotonic.millis) - 2_000)
        yield* TestClock.adjust("1 second")
      }
      // The first, and then whatever began after the last one that was counted had failed: every second send.
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [4]
      )
    })
)

/** The first of eight partitions, and a lane in two of them. */
const [first, second, third] = [
  { partition: 0, count: 8 },
  { partition: 1, count: 8 },
  { partition: 2, count: 8 }
]
const [inFirst, inSecond] = [Lane.make(8), Lane.make(9)]

/** Half of what each wait may be. */
const halfway = Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })

const makePauses = PauseRules.make({ baseMillis: 1_000, capMillis: 60_000, forgottenAfterMillis: 600_000 })

it.effect(
  "of a topic of which a part is away, that part is tried ever more seldom, whatever succeeds in the others",
  () =>
    Effect.gen(function* () {
      const pauses = yield* makePauses
      for (let failure = 1; failure <= 6; failure++) {
        yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
        // Nobody else waits for it.
        assert.deepStrictEqual(yield* pauses.runningIn(inSecond), [])
        yield* TestClock.adjust(1)
        yield* pauses.end("orders", second, yield* Monotonic.millis)
        // The first time it goes on: all of the topic may have been away.
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), failure === 1 ? [] : ["orders"])
        assert.deepStrictEqual(
          (yield* pauses.all).map(({ attempt, topic }) => [topic, attempt]),
          [["orders", failure]]
        )
        assert.strictEqual((yield* pauses.nextEndMillis) ?? 1, failure === 1 ? 1 : 500 * 2 ** (failure - 1) - 1)
        yield* TestClock.adjust((yield* pauses.nextEndMillis) ?? 0)
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
      }
      assert.isAbove(pauses.failedMillis(inFirst), 0)
      assert.strictEqual(pauses.failedMillis(inSecond), 0)
      yield* pauses.end("orders", first, yield* Monotonic.millis)
      assert.deepStrictEqual(yield* pauses.all, [])
      assert.strictEqual(pauses.failedMillis(inFirst), 0)
    }).pipe(halfway)
)

it.effect("so are several parts that fail one after the other, with a success once in a while", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    const parts = [0, 1, 2, 3].map((partition) => ({ place: { partition, count: 8 }, lane: Lane.make(8 + partition) }))
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
    // Six waits of up to 16 s, then one each half minute: 25 tries each. With one for each success they were 600.
    assert.isAtMost(tries, 4 * 30)
  }).pipe(halfway)
)

it.effect(
  "of a topic that was away as a whole the first success ends all waits; who fails again goes on counting",
  () =>
    Effect.gen(function* () {
      const pauses = yield* makePauses
      const fail = (place: PauseRules.Place) =>
        Effect.flatMap(Monotonic.millis, (sentMillis) => pauses.begin("orders", place, away, sentMillis))
      for (let round = 0; round < 4; round++) {
        yield* fail(first)
        yield* fail(second)
        // Something got through for a moment.
        if (round === 1) yield* pauses.end("orders", third, yield* Monotonic.millis)
        yield* TestClock.adjust("1 minute")
      }
      const sentMillis = yield* Monotonic.millis
      yield* fail(first)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
      // What was sent before that failure may have arrived before the topic went away.
      yield* pauses.end("orders", second, sentMillis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
      yield* fail(second)
      yield* TestClock.adjust("1 second")
      yield* pauses.changed.close
      yield* pauses.end("orders", second, yield* Monotonic.millis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
      // Whoever waits is told.
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

it.effect("a pause that ends since another send to the same partition arrives is told of", () =>
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

it.effect(
  "a pause after which nothing was sent any more is forgotten after a minute: its lanes have gone elsewhere",
  () =>
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
      // The next failure is a first one.
      yield* pauses.begin("orders", undefined, away, yield* Monotonic.millis)
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [1]
      )
      assert.isAtMost((yield* pauses.nextEndMillis) ?? 0, 1_000)
    })
)

it.effect("what was sent before the topic was back, and fails after that, is tried again at once", () =>
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
    // Once: what is sent now, and fails, has failed by itself.
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

it.effect("what has failed is tried by one send at a time, and two are under way in all", () =>
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
    // Who has not failed is not held up.
    assert.deepStrictEqual(yield* pauses.runningIn(Lane.make(3)), [])
    yield* pauses.attempt("orders", { partition: 3, count: 8 }, Effect.void)
    // One that is cut off makes room, too, and whoever waits is told.
    yield* pauses.changed.close
    yield* Fiber.interrupt(toSecond)
    yield* pauses.changed.await
    assert.deepStrictEqual(yield* pauses.runningIn(Lane.make(2)), [])
    yield* Deferred.succeed(over, undefined)
    yield* Fiber.join(toFirst)
    yield* sendTo(first)
  }).pipe(halfway)
)

it.effect("one that comes and goes does not make the others be tried as often", () =>
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
    // Six waits of up to 16 s, then one each half minute, and each of them once more, at most.
    assert.isAtMost(tries, 2 * 15)
  }).pipe(halfway)
)

it.effect("what waits for room to be tried is not forgotten meanwhile", () =>
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

it.effect("who waits for another one's try hears of it when the place is well by a send before that", () =>
  Effect.gen(function* () {
    const pauses = yield* makePauses
    yield* pauses.begin("orders", first, away, yield* Monotonic.millis)
    yield* TestClock.adjust("1 second")
    const sentMillis = yield* Monotonic.millis
    // It has arrived, and is still to be marked.
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

it.effect("no pause is longer for a wall clock that is set back", () =>
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
