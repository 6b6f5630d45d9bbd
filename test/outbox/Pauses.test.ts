/** What a topic that can't be reached is paused by, and until when. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer, Metric, Ref } from "effect"
import { TestClock } from "effect/testing"
import { BrokerUnavailable, MessageRejected } from "../../src/messaging/broker/Broker.ts"
import { Dispatcher, DispatcherSettings } from "../../src/messaging/outbox/Dispatcher.ts"
import * as TopicPauses from "../../src/messaging/outbox/TopicPauses.ts"
import { laneOf } from "../../src/messaging/outbox/Lane.ts"
import { Transaction } from "../../src/platform/database/Transaction.ts"
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
      yield* pauses.begin("orders", away, sentMillis)
    }
    assert.strictEqual(yield* attempt, 1)
    yield* TestClock.adjust("400 millis")
    yield* pauses.begin("orders", away, yield* Clock.currentTimeMillis)
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
        yield* pauses.begin("orders", away, (yield* Clock.currentTimeMillis) - 2_000)
        yield* TestClock.adjust("1 second")
      }
      // The first, and then whatever began after the last one that was counted had failed: every second send.
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [4]
      )
    })
)

it.effect(
  "a pause after which nothing was sent any more is forgotten after a minute: its lanes have gone elsewhere",
  () =>
    Effect.gen(function* () {
      const pauses = yield* TopicPauses.make({ baseMillis: 1_000, capMillis: 1_000, forgottenAfterMillis: 60_000 })
      yield* pauses.begin("orders", away, yield* Clock.currentTimeMillis)
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
      yield* pauses.begin("orders", away, yield* Clock.currentTimeMillis)
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [1]
      )
      assert.isAtMost((yield* pauses.nextEndMillis) ?? 0, 1_000)
    })
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
