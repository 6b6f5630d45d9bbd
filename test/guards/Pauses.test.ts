/** Which lanes a dispatcher pauses during an outage, and which ones go on. The rules alone are tested in PauseRules.test.ts. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Metric, Ref } from "effect"
import { SqlClient } from "effect/sql"
import { BrokerUnavailable, MessageRejected, TopicUnavailable } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { PartitionPauses, PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { QueueSettings } from "../../src/outbox/Queue.ts"
import { allLanes, Lane, laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Faults, type FaultsService } from "../../src/platform/Faults.ts"
import * as Counters from "../support/Counters.ts"
import * as Ledger from "../support/Ledger.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** Aggregates in different lanes. */
const aggregates = ["a", "b", "c"]

/** A dispatcher on a broker that is unavailable until `isBack`. The first pause lasts up to `backoffMillis`. */
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
    Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: backoffMillis, backoffCapMillis: backoffMillis }))
  )

const drainAll = Effect.flatMap(Dispatcher, ({ drainOnce }) =>
  Effect.forEach(aggregates, (id) => drainOnce([laneOf(id)]), { concurrency: "unbounded", discard: true })
)

it.live("concurrent sends that fail are one failure of their topic, which is not fetched while it is paused", () => {
  let fetched = 0
  const counting: FaultsService = {
    at: (point) => Effect.sync(() => void (fetched += point === "dispatcher.after-fetch" ? 1 : 0)),
    around: (_, operation) => operation
  }
  return Effect.gen(function* () {
    for (const id of aggregates) yield* Transaction.run(Ledger.append(id, 1))
    const isBack = yield* Ref.make(false)
    yield* Effect.gen(function* () {
      const pauses = yield* PartitionPauses
      yield* drainAll
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [1]
      )
      for (const id of aggregates) assert.deepStrictEqual(yield* pauses.runningIn(laneOf(id)), [Ledger.topic])
      const other = allLanes.find((lane) => aggregates.every((id) => lane % 8 !== laneOf(id) % 8))!
      assert.deepStrictEqual(yield* pauses.runningIn(other), [])
      // The broker is back, and no send shows it: paused lanes are not tried.
      yield* Ref.set(isBack, true)
      yield* drainAll
      assert.strictEqual(yield* Ledger.countEmbedded, 0)
      assert.strictEqual(fetched, aggregates.length)
      // A random delay of up to 34 years: it ends within the test once in a hundred million runs.
    }).pipe(Effect.provide(dispatcherOver(isBack, 2 ** 40)))
  }).pipe(Effect.provide(writer), Effect.provideService(Faults, counting))
})

it.live("the first send that succeeds ends the pause, and resets the count of failures", () =>
  Effect.gen(function* () {
    for (const id of aggregates) yield* Transaction.run(Ledger.append(id, 1))
    const isBack = yield* Ref.make(false)
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      const pauses = yield* PartitionPauses
      yield* drainOnce([laneOf("a")])
      yield* drainOnce([laneOf("a")])
      assert.deepStrictEqual(
        (yield* pauses.all).map(({ attempt }) => attempt),
        [2]
      )
      yield* Ref.set(isBack, true)
      // A paused partition is tried by one send at a time. After its success all lanes are sent.
      yield* drainAll
      assert.deepStrictEqual(yield* pauses.all, [])
      yield* drainAll
      assert.strictEqual(yield* Ledger.countEmbedded, aggregates.length)
    }).pipe(Effect.provide(dispatcherOver(isBack, 0)))
  }).pipe(Effect.provide(writer))
)

const away = new BrokerUnavailable({ operation: "publish", cause: "away" })

/**
 * A dispatcher over these steps with pauses of up to `backoffMillis`. A pause of up to 34 years ends within a test once in a hundred
 * million runs.
 */
const dispatcherWith = <R>(steps: ReturnType<typeof TestProcess.dispatcherStepsOver<R>>, backoffMillis: number) =>
  Dispatcher.layer.pipe(
    Layer.provideMerge(steps),
    Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: backoffMillis, backoffCapMillis: backoffMillis }))
  )

const placeOf = (id: string) => partitionOf(laneOf(id), 8)
/** Aggregates in other partitions than "bad". */
const goods = Array.from({ length: 40 }, (_, index) => `good-${index}`).filter((id) => placeOf(id) !== placeOf("bad"))

/** After the second failure the topic is checked again, since it may no longer have the settings that were checked. */
const failures = [away, new TopicUnavailable({ topic: Counters.topic, reason: "its clock is wrong" })]

it.live.each(failures)(
  "a lane whose partition is paused is not sent from, also when its topic was reached elsewhere: %s",
  (failure) =>
    Effect.gen(function* () {
      const elsewhere = goods.at(-1)!
      for (const id of ["bad", elsewhere]) yield* Transaction.run(Ledger.append(id, 1))
      const isUnderWay = yield* Deferred.make<void>()
      const hasFailed = yield* Deferred.make<void>()
      let tries = 0
      const steps = TestProcess.dispatcherStepsOver(
        TestProcess.publishing((batch, broker) =>
          batch.records[0].key === "bad"
            ? Effect.suspend(() => (tries++ === 0 ? Effect.fail(failure) : broker.publish(batch)))
            : Effect.andThen(
                Effect.andThen(Deferred.succeed(isUnderWay, undefined), Deferred.await(hasFailed)),
                broker.publish(batch)
              )
        )
      )
      yield* Effect.gen(function* () {
        const { drainOnce } = yield* Dispatcher
        const pauses = yield* PartitionPauses
        const other = yield* Effect.forkChild(drainOnce([laneOf(elsewhere)]))
        // A send that began after the failure would show that the topic is reached.
        yield* Deferred.await(isUnderWay)
        yield* drainOnce([laneOf("bad")])
        yield* Deferred.succeed(hasFailed, undefined)
        yield* Fiber.join(other)
        assert.deepStrictEqual(
          (yield* pauses.all).map(({ attempt }) => attempt),
          [1]
        )
        yield* drainOnce([laneOf("bad")])
        assert.strictEqual(tries, 1)
        assert.strictEqual(yield* Ledger.countEmbedded, 1)
      }).pipe(
        Effect.provide(
          Dispatcher.layer.pipe(
            Layer.provideMerge(steps),
            // As above: the pause ends within the test once in a hundred million runs.
            Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 2 ** 40, backoffCapMillis: 2 ** 40 }))
          )
        )
      )
    }).pipe(Effect.provide(writer))
)

it.live.each(failures)(
  "an unavailable partition is tried less and less often while the topic's other partitions are written to: %s",
  (failure) =>
    Effect.gen(function* () {
      const partitions = 8
      const placeOf = (id: string) => partitionOf(laneOf(id), partitions)
      const goods = Array.from({ length: 40 }, (_, index) => `good-${index}`).filter(
        (id) => placeOf(id) !== placeOf("bad")
      )
      const broker = TestProcess.publishing((batch, broker) => {
        assert.strictEqual(batch.partition, placeOf(batch.records[0].key))
        return batch.partition === placeOf("bad") ? Effect.fail(failure) : broker.publish(batch)
      })
      const context = yield* Layer.build(
        TestProcess.dispatcherOver(broker).pipe(
          Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
          Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 10, backoffCapMillis: 1_000 }))
        )
      )
      const traffic = yield* Effect.forkScoped(
        Effect.forever(Effect.forEach(goods, (id) => Transaction.run(Ledger.append(id, 1)), { discard: true }))
      )
      yield* Transaction.run(Ledger.append("bad", 1))
      yield* Effect.raceFirst(
        Counters.eventually(
          "the sixth failure in a row",
          Effect.map(Context.get(context, PartitionPauses).all, ([pause]) => (pause?.attempt ?? 0) >= 6)
        ),
        Fiber.join(traffic)
      )
    }).pipe(Effect.scoped, Effect.provide(writer))
)

/** An aggregate id that falls into the lane. */
const idIn = (lane: number, prefix: string) => {
  for (let index = 0; ; index++) if (laneOf(`${prefix}-${index}`) === lane) return `${prefix}-${index}`
}

it.live("healthy partitions keep publishing, however many others do not answer", () =>
  Effect.gen(function* () {
    const isDead = (partition: number) => partition < 3
    const over = yield* Deferred.make<void>()
    const tried = new Set<number>()
    let hanging = 0
    const broker = TestProcess.publishing((batch, broker) =>
      Effect.suspend(() => {
        if (!isDead(batch.partition)) return broker.publish(batch)
        // The first send to each partition fails at once, and later ones get no answer.
        const isFirst = !tried.has(batch.partition)
        tried.add(batch.partition)
        if (!isFirst) hanging++
        return Effect.andThen(isFirst ? Effect.void : Deferred.await(over), Effect.fail(away))
      })
    )
    // One lane for each partition: the event of a second lane might be sent before the failure of the first one.
    for (const lane of [0, 1, 2]) yield* Transaction.run(Ledger.append(idIn(lane, "away"), 1))
    yield* Layer.build(
      TestProcess.dispatcherOver(broker).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })),
        Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 0, backoffCapMillis: 0 }))
      )
    )
    // A stop waits for the send in flight.
    yield* Effect.addFinalizer(() => Deferred.succeed(over, undefined))
    yield* Counters.eventually(
      "two attempts in flight, and the third one's failure",
      Effect.sync(() => hanging === 2 && tried.size === 3)
    )
    const sendWell = Effect.fnUntraced(function* (version: number) {
      yield* Transaction.run(Ledger.append(idIn(63, "well"), 1))
      yield* Counters.eventually(
        `event ${version}`,
        Effect.map(Ledger.countEmbedded, (count) => count === version)
      )
    })
    // Two sends hang, and the healthy partition still publishes.
    yield* sendWell(1)
    for (const lane of [8, 9, 10]) yield* Transaction.run(Ledger.append(idIn(lane, "away"), 1))
    for (const version of [2, 3, 4]) yield* sendWell(version)
    assert.strictEqual(hanging, 2)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a partition that is back gets its turn, although unavailable ones are always due", () =>
  Effect.gen(function* () {
    for (const lane of [0, 1, 2]) yield* Transaction.run(Ledger.append(idIn(lane, "away"), 1))
    let triesOfThird = 0
    const broker = TestProcess.publishing((batch, broker) =>
      Effect.suspend(() =>
        batch.partition === 2 && triesOfThird++ > 0
          ? broker.publish(batch)
          : Effect.andThen(Effect.sleep("20 millis"), Effect.fail(away))
      )
    )
    yield* Layer.build(
      TestProcess.dispatcherOver(broker).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })),
        Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 0, backoffCapMillis: 0 }))
      )
    )
    yield* Counters.eventually(
      "the one that can be reached",
      Effect.map(Ledger.countEmbedded, (count) => count === 1)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a partition that is back does not wait behind two that failed before it and have no events left", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const lanes = [0, 1, 2].map((lane) => Lane.make(lane))
    for (const lane of lanes) yield* Transaction.run(Ledger.append(idIn(lane, "away"), 1, "away"))
    let isBack = false
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing((batch, broker) =>
        isBack || batch.topic !== "away" ? broker.publish(batch) : Effect.fail(away)
      )
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      yield* drainOnce(lanes)
      isBack = true
      // As where another process owned these lanes for a while. They have other topics' events, and come with each fetch.
      yield* sql`DELETE FROM outbox_events WHERE lane IN (0, 1)`
      for (let round = 0; round < 3; round++) {
        for (const lane of [0, 1]) yield* Transaction.run(Ledger.append(idIn(lane, "well"), 1))
        yield* drainOnce(lanes)
      }
      assert.deepStrictEqual(yield* Counters.queuedVersions(idIn(2, "away")), [])
    }).pipe(Effect.provide(dispatcherWith(steps, 0)))
  }).pipe(Effect.provide(writer))
)

it.live("events behind the backlog of an unavailable topic are sent, even if the backlog exceeds a batch", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Ledger.append(idIn(0, "away"), 5, "away"))
    yield* Transaction.run(Ledger.append(idIn(0, "well"), 1))
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing((batch, broker) => (batch.topic === "away" ? Effect.fail(away) : broker.publish(batch)))
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      yield* drainOnce([Lane.make(0)])
      assert.strictEqual(yield* Ledger.countEmbedded, 0)
      yield* drainOnce([Lane.make(0)])
      assert.strictEqual(yield* Ledger.countEmbedded, 1)
    }).pipe(
      Effect.provide(
        Dispatcher.layer.pipe(
          Layer.provideMerge(steps),
          Layer.provide(Layer.succeed(QueueSettings, { archive: true, batchSize: 3, batchBytes: 900_000 })),
          Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 2 ** 40, backoffCapMillis: 2 ** 40 }))
        )
      )
    )
  }).pipe(Effect.provide(writer))
)

it.live.each([
  ["of a lane's topics those that are well go first", 1],
  ["also from behind a backlog that is tried, and is more than a batch", 5]
] as const)("%s", ([, backlog]) =>
  Effect.gen(function* () {
    yield* Transaction.run(Ledger.append(idIn(0, "away"), backlog, "away"))
    const over = yield* Deferred.make<void>()
    let tries = 0
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing((batch, broker) =>
        batch.topic !== "away"
          ? broker.publish(batch)
          : Effect.andThen(
              Effect.suspend(() => (tries++ === 0 ? Effect.void : Deferred.await(over))),
              Effect.fail(away)
            )
      )
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      yield* drainOnce([Lane.make(0)])
      yield* Transaction.run(Ledger.append(idIn(0, "well"), 1))
      const turn = yield* Effect.forkChild(drainOnce([Lane.make(0)]))
      yield* Counters.eventually(
        "the other topic's event",
        Effect.map(Ledger.countEmbedded, (count) => count === 1)
      )
      yield* Deferred.succeed(over, undefined)
      yield* Fiber.join(turn)
      assert.strictEqual(tries, 2)
    }).pipe(
      Effect.provide(
        dispatcherWith(steps, 0).pipe(
          Layer.provide(Layer.succeed(QueueSettings, { archive: true, batchSize: 3, batchBytes: 900_000 }))
        )
      )
    )
  }).pipe(Effect.provide(writer))
)

it.live("of a lane's unavailable topics one is tried at a time, the longest due first", () =>
  Effect.gen(function* () {
    for (const topic of ["one", "two"]) yield* Transaction.run(Ledger.append(idIn(0, topic), 1, topic))
    const tries: Array<string> = []
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing(({ topic }) => Effect.suspend(() => (tries.push(topic), Effect.fail(away))))
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      // No failure is known yet.
      yield* drainOnce([Lane.make(0)])
      assert.deepStrictEqual(tries, ["one", "two"])
      for (const expected of ["one", "two", "one", "two"]) {
        yield* drainOnce([Lane.make(0)])
        assert.strictEqual(tries.at(-1), expected)
      }
      assert.strictEqual(tries.length, 6)
    }).pipe(Effect.provide(dispatcherWith(steps, 0)))
  }).pipe(Effect.provide(writer))
)

it.live("a topic that refuses an event counts as reached", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Ledger.append("a", 1))
    const isBack = yield* Ref.make(false)
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing(({ partition, topic }) =>
        Effect.flatMap(Ref.get(isBack), (back) =>
          Effect.fail(back ? new MessageRejected({ topic, partition, reason: "too large" }) : away)
        )
      )
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      const pauses = yield* PartitionPauses
      yield* drainOnce([laneOf("a")])
      assert.strictEqual((yield* pauses.all).length, 1)
      yield* Ref.set(isBack, true)
      yield* drainOnce([laneOf("a")])
      assert.deepStrictEqual(yield* pauses.all, [])
    }).pipe(Effect.provide(dispatcherWith(steps, 0)))
  }).pipe(Effect.provide(writer))
)

it.live.each([
  { what: "over already: it is another failure", backoffMillis: 0, attempt: 2 },
  // As above: the pause ends within the test once in a hundred million runs.
  { what: "running: it is not tried", backoffMillis: 2 ** 40, attempt: 1 }
])(
  "a lane's second topic fails elsewhere while the first is sent, and its pause is $what",
  ({ attempt, backoffMillis }) =>
    Effect.gen(function* () {
      const [zero, eight] = [Lane.make(0), Lane.make(8)]
      for (const topic of ["first", "second"]) yield* Transaction.run(Ledger.append(idIn(zero, topic), 1, topic))
      yield* Transaction.run(Ledger.append(idIn(eight, "third"), 1, "second"))
      const arrives = yield* Deferred.make<void>()
      const isUnderWay = yield* Deferred.make<void>()
      let tries = 0
      const steps = TestProcess.dispatcherStepsOver(
        TestProcess.publishing((batch, broker) =>
          batch.topic === "second"
            ? Effect.suspend(() => (tries++, Effect.fail(away)))
            : Effect.andThen(
                Deferred.succeed(isUnderWay, undefined),
                Effect.andThen(Deferred.await(arrives), broker.publish(batch))
              )
        )
      )
      yield* Effect.gen(function* () {
        const { drainOnce } = yield* Dispatcher
        const pauses = yield* PartitionPauses
        const turn = yield* Effect.forkChild(drainOnce([zero]))
        yield* Deferred.await(isUnderWay)
        yield* drainOnce([eight])
        yield* Deferred.succeed(arrives, undefined)
        yield* Fiber.join(turn)
        assert.strictEqual(tries, attempt)
        assert.deepStrictEqual(
          (yield* pauses.all).map((pause) => [pause.topic, pause.attempt]),
          [["second", attempt]]
        )
      }).pipe(
        Effect.provide(
          Dispatcher.layer.pipe(
            Layer.provideMerge(steps),
            Layer.provide(
              Layer.succeed(PauseSettings, { backoffBaseMillis: backoffMillis, backoffCapMillis: backoffMillis })
            )
          )
        )
      )
    }).pipe(Effect.provide(writer))
)

const failed = Effect.map(Metric.snapshot, (metrics) =>
  metrics
    .filter(
      ({ attributes, id }) => id === "outbox_events_failed_total" && attributes?.["reason"] === "BrokerUnavailable"
    )
    .reduce((sum, metric) => sum + (metric.type === "Counter" ? Number(metric.state.count) : 0), 0)
)

it.live("of a batch in parts the events of failed sends count as failed, and no others", () =>
  Effect.gen(function* () {
    const { drainOnce } = yield* Dispatcher
    yield* Transaction.run(Ledger.append("a", 8))
    const before = yield* failed
    yield* drainOnce([laneOf("a")])
    assert.strictEqual(yield* Ledger.countEmbedded, 2)
    assert.strictEqual((yield* failed) - before, 2)
  }).pipe(
    Effect.provide(
      Dispatcher.layer.pipe(
        Layer.provideMerge(
          TestProcess.dispatcherStepsOver(
            TestProcess.publishing((batch, broker) =>
              // Two events at a time: the first pair arrives, and then the broker is unavailable.
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
