/** What a topic that can't be reached is paused by, and until when. */
import { assert, it } from "@effect/vitest"
import { Clock, Context, Deferred, Effect, Fiber, Layer, Metric, Ref } from "effect"
import { TestClock } from "effect/testing"
import { BrokerUnavailable, MessageRejected } from "../../src/messaging/broker/Broker.ts"
import { Dispatcher, DispatcherSettings } from "../../src/messaging/outbox/Dispatcher.ts"
import * as TopicPauses from "../../src/messaging/outbox/TopicPauses.ts"
import { Lane, laneOf, partitionOf } from "../../src/messaging/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/messaging/outbox/LaneWorkers.ts"
import { Transaction } from "../../src/platform/database/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Ledger from "../support/Ledger.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** In lanes of their own. */
const aggregates = ["a", "b", "c"]

/** A dispatcher over a broker that is away until `isBack`, and whose first pause lasts up to `backoffMillis`. */
const dispatcherOver = (isBack: Ref.Ref<boolean>, backoffMillis: number) =>
  Dispatcher.layer.pipe(
    Layer.provideMerge(
      TestProcess.dispatcherStepsOver(
        TestProcess.publishing((batch, broker) =>
          Effect.flatMap(Ref.get(isBack), (back) =>
            back
              ? broker.publish(batch)
              : // All that is under way fails together, as in an outage.
                Effect.andThen(
                  Effect.yieldNow,
                  Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
                )
          )
        )
      )
    ),
    Layer.provide(
      Layer.succeed(DispatcherSettings, { backoffBaseMillis: backoffMillis, backoffCapMillis: backoffMillis })
    )
  )

const drainAll = Effect.flatMap(Dispatcher, ({ drainOnce }) =>
  Effect.forEach(aggregates, (id) => drainOnce(laneOf(id)), { concurrency: "unbounded", discard: true })
)

it.live("sends that fail together are one failure of their topic, which is fetched no more while it is paused", () =>
  Effect.gen(function* () {
    for (const id of aggregates) yield* Transaction.run(Ledger.append(id, 1))
    const isBack = yield* Ref.make(false)
    yield* Effect.gen(function* () {
      const { pausedTopics, pauses } = yield* Dispatcher
      yield* drainAll
      assert.deepStrictEqual(
        (yield* pauses).map(({ attempt }) => attempt),
        [1]
      )
      assert.strictEqual((yield* pausedTopics).length, 1)
      // Back, and nobody knows: what is paused is not tried.
      yield* Ref.set(isBack, true)
      yield* drainAll
      assert.strictEqual(yield* Ledger.countEmbedded, 0)
      // Random between nothing and 34 years: shorter than the test once in a hundred million times.
    }).pipe(Effect.provide(dispatcherOver(isBack, 2 ** 40)))
  }).pipe(Effect.provide(writer))
)

it.live("the first send that succeeds ends the pause, and the failures in a row", () =>
  Effect.gen(function* () {
    for (const id of aggregates) yield* Transaction.run(Ledger.append(id, 1))
    const isBack = yield* Ref.make(false)
    yield* Effect.gen(function* () {
      const { drainOnce, pauses } = yield* Dispatcher
      yield* drainOnce(laneOf("a"))
      yield* drainOnce(laneOf("a"))
      assert.deepStrictEqual(
        (yield* pauses).map(({ attempt }) => attempt),
        [2]
      )
      yield* Ref.set(isBack, true)
      yield* drainAll
      assert.deepStrictEqual(yield* pauses, [])
      assert.strictEqual(yield* Ledger.countEmbedded, aggregates.length)
    }).pipe(Effect.provide(dispatcherOver(isBack, 0)))
  }).pipe(Effect.provide(writer))
)

const away = new BrokerUnavailable({ operation: "publish", cause: "away" })

it.effect("sends that were under way together are one failure, also where they fail one after the other", () =>
  Effect.gen(function* () {
    const pauses = yield* TopicPauses.make({ baseMillis: 10, capMillis: 10, forgottenAfterMillis: 60_000 })
    const attempt = Effect.map(pauses.all, ([pause]) => pause?.attempt)
    const sentMillis = yield* Clock.currentTimeMillis
    for (let send = 0; send < 8; send++) {
      yield* TestClock.adjust("400 millis")
      yield* pauses.begin("orders", undefined, away, sentMillis)
    }
    assert.strictEqual(yield* attempt, 1)
    yield* TestClock.adjust("400 millis")
    yield* pauses.begin("orders", undefined, away, yield* Clock.currentTimeMillis)
    assert.strictEqual(yield* attempt, 2)
  })
)

it.effect(
  "failures in a row are counted though sends to the topic are always under way, out of step with one another",
  () =>
    Effect.gen(function* () {
      const pauses = yield* TopicPauses.make({ baseMillis: 10, capMillis: 10, forgottenAfterMillis: 60_000 })
      // Two lanes in turn, each of whose sends takes two seconds and begins in the middle of the other's.
      yield* TestClock.adjust("2 seconds")
      for (let send = 0; send < 8; send++) {
        yield* pauses.begin("orders", undefined, away, (yield* Clock.currentTimeMillis) - 2_000)
        yield* TestClock.adjust("1 second")
      }
      // The first, and then whatever began after the last one that was counted had failed: every second send.
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [4]
      )
    })
)

/** The first two of eight partitions, and a lane in each. */
const [first, second] = [
  { partition: 0, count: 8 },
  { partition: 1, count: 8 }
]
const [inFirst, inSecond] = [Lane.make(8), Lane.make(9)]

it.effect(
  "of a topic of which a part is away, that part is tried ever more seldom, whatever succeeds in the others",
  () =>
    Effect.gen(function* () {
      const pauses = yield* TopicPauses.make({ baseMillis: 10, capMillis: 1_000, forgottenAfterMillis: 60_000 })
      for (let failure = 1; failure <= 6; failure++) {
        yield* pauses.begin("orders", first, away, yield* Clock.currentTimeMillis)
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
        yield* pauses.end("orders", second)
        // The others go on at once.
        assert.deepStrictEqual(yield* pauses.runningIn(inSecond), [])
        assert.deepStrictEqual(yield* pauses.running, [])
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
        assert.deepStrictEqual(
          (yield* pauses.all).map(({ attempt, topic }) => [topic, attempt]),
          [["orders", failure]]
        )
        yield* TestClock.adjust(1 + ((yield* pauses.nextEndMillis) ?? 0))
        assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
      }
      yield* pauses.end("orders", first)
      assert.deepStrictEqual(yield* pauses.all, [])
    })
)

it.effect(
  "of a topic that was away as a whole the first success ends all waits; who fails again goes on counting",
  () =>
    Effect.gen(function* () {
      const pauses = yield* TopicPauses.make({ baseMillis: 1_000, capMillis: 60_000, forgottenAfterMillis: 60_000 })
      for (let round = 0; round < 4; round++) {
        const sentMillis = yield* Clock.currentTimeMillis
        yield* pauses.begin("orders", first, away, sentMillis)
        yield* pauses.begin("orders", second, away, sentMillis)
        yield* TestClock.adjust("1 minute")
      }
      yield* pauses.begin("orders", first, away, yield* Clock.currentTimeMillis)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), ["orders"])
      yield* pauses.begun.close
      yield* pauses.end("orders", second)
      assert.deepStrictEqual(yield* pauses.runningIn(inFirst), [])
      // Whoever waits is told.
      yield* pauses.begun.await
      yield* pauses.begin("orders", first, away, yield* Clock.currentTimeMillis)
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [6]
      )
    })
)

it.effect(
  "a pause after which nothing was sent any more is forgotten after a minute: its lanes have gone elsewhere",
  () =>
    Effect.gen(function* () {
      const pauses = yield* TopicPauses.make({ baseMillis: 1_000, capMillis: 1_000, forgottenAfterMillis: 60_000 })
      yield* pauses.begin("orders", undefined, away, yield* Clock.currentTimeMillis)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* pauses.running, [])
      assert.isUndefined(yield* pauses.nextEndMillis)
      yield* TestClock.adjust("58 seconds")
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt, topic }) => [topic, attempt]),
        [["orders", 1]]
      )
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(yield* pauses.all, [])
      // The next failure is a first one.
      yield* pauses.begin("orders", undefined, away, yield* Clock.currentTimeMillis)
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [1]
      )
      assert.isAtMost((yield* pauses.nextEndMillis) ?? 0, 1_000)
    })
)

const placeOf = (id: string) => partitionOf(laneOf(id), 8)
/** In other partitions than "bad". */
const goods = Array.from({ length: 40 }, (_, index) => `good-${index}`).filter((id) => placeOf(id) !== placeOf("bad"))

it.live("a lane whose partition is paused is not sent from, also when its topic was reached elsewhere", () =>
  Effect.gen(function* () {
    const elsewhere = goods.at(-1)!
    for (const id of ["bad", elsewhere]) yield* Transaction.run(Ledger.append(id, 1))
    const hasFailed = yield* Deferred.make<void>()
    let tries = 0
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing((batch, broker) =>
        batch.records[0].key === "bad"
          ? Effect.suspend(() => (tries++ === 0 ? Effect.fail(away) : broker.publish(batch)))
          : Effect.andThen(Deferred.await(hasFailed), broker.publish(batch))
      )
    )
    yield* Effect.gen(function* () {
      const { drainOnce, pauses, pausedTopics } = yield* Dispatcher
      const other = yield* Effect.forkChild(drainOnce(laneOf(elsewhere)))
      yield* drainOnce(laneOf("bad"))
      yield* Deferred.succeed(hasFailed, undefined)
      yield* Fiber.join(other)
      assert.deepStrictEqual(yield* pausedTopics, [])
      assert.deepStrictEqual(
        (yield* pauses).map(({ attempt }) => attempt),
        [1]
      )
      yield* drainOnce(laneOf("bad"))
      assert.strictEqual(tries, 1)
      assert.strictEqual(yield* Ledger.countEmbedded, 1)
    }).pipe(
      Effect.provide(
        Dispatcher.layer.pipe(
          Layer.provideMerge(steps),
          // As above: shorter than the test once in a hundred million times.
          Layer.provide(Layer.succeed(DispatcherSettings, { backoffBaseMillis: 2 ** 40, backoffCapMillis: 2 ** 40 }))
        )
      )
    )
  }).pipe(Effect.provide(writer))
)

it.live("while the other partitions of a topic are written to, one that is away is tried ever more seldom", () =>
  Effect.gen(function* () {
    const partitions = 8
    const placeOf = (id: string) => partitionOf(laneOf(id), partitions)
    const goods = Array.from({ length: 40 }, (_, index) => `good-${index}`).filter(
      (id) => placeOf(id) !== placeOf("bad")
    )
    const broker = TestProcess.publishing((batch, broker) => {
      assert.strictEqual(batch.partition, placeOf(batch.records[0].key))
      return batch.partition === placeOf("bad") ? Effect.fail(away) : broker.publish(batch)
    })
    const context = yield* Layer.build(
      TestProcess.dispatcherOver(broker).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50, lanesSideBySide: 4, topics: [] })),
        Layer.provide(Layer.succeed(DispatcherSettings, { backoffBaseMillis: 10, backoffCapMillis: 1_000 }))
      )
    )
    const traffic = yield* Effect.forkScoped(
      Effect.forever(Effect.forEach(goods, (id) => Transaction.run(Ledger.append(id, 1)), { discard: true }))
    )
    yield* Transaction.run(Ledger.append("bad", 1))
    yield* Effect.raceFirst(
      Counters.eventually(
        "the sixth failure in a row",
        Effect.map(Context.get(context, Dispatcher).pauses, ([pause]) => (pause?.attempt ?? 0) >= 6)
      ),
      Fiber.join(traffic)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

const failed = Effect.map(Metric.snapshot, (metrics) =>
  metrics
    .filter(
      ({ attributes, id }) => id === "outbox_events_failed_total" && attributes?.["reason"] === "BrokerUnavailable"
    )
    .reduce((sum, metric) => sum + (metric.type === "Counter" ? Number(metric.state.count) : 0), 0)
)

it.live("of a batch in parts those count as failed that were in a send which failed, and no others", () =>
  Effect.gen(function* () {
    const { drainOnce } = yield* Dispatcher
    yield* Transaction.run(Ledger.append("a", 8))
    const before = yield* failed
    yield* drainOnce(laneOf("a"))
    assert.strictEqual(yield* Ledger.countEmbedded, 2)
    assert.strictEqual((yield* failed) - before, 2)
  }).pipe(
    Effect.provide(
      Dispatcher.layer.pipe(
        Layer.provideMerge(
          TestProcess.dispatcherStepsOver(
            TestProcess.publishing((batch, broker) =>
              // Two at a time: the first pair arrives, and then the broker is away.
              batch.records.length > 2
                ? Effect.fail(
                    new MessageRejected({ topic: batch.topic, partition: batch.partition, reason: "too large" })
                  )
                : new TextDecoder().decode(batch.records[0].value).includes(`"aggregateVersion":1,`)
                  ? broker.publish(batch)
                  : Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
            )
          )
        ),
        Layer.provideMerge(writer)
      )
    )
  )
)
