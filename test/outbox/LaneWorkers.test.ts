import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, Metric, Random, SubscriptionRef } from "effect"
import { BrokerUnavailable } from "../../src/brokers/Broker.ts"
import * as Dispatching from "../../src/Dispatching.ts"
import { PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { type Lane, laneCount, laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { type LaneView, Queue, QueueSettings } from "../../src/outbox/Queue.ts"
import { Ownership } from "../../src/platform/Ownership.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as Counters from "../support/Counters.ts"
import * as Dispatchers from "../support/Dispatchers.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** A poll that never runs. */
const unpolled = { pollMillis: 600_000 }

const batchSize = 10
const hotEvents = 1_000

it.live("a hot lane can't starve the others: every ready lane without a backlog is in the next round", () =>
  Effect.gen(function* () {
    const outbox = yield* Outbox
    const append = (id: string, count: number) => {
      const event = { eventType: "Happened", schemaVersion: 1, data: {} }
      return Transaction.run(
        outbox.append({ topic: Counters.topic, aggregateType: "Other", aggregateId: id }, 1, [
          event,
          ...Array.from({ length: count - 1 }, () => event)
        ])
      )
    }
    // The lowest lane comes first in each round, so it could crowd out all others.
    const ids = Array.from({ length: 200 }, (_, index) => `aggregate-${index}`)
    const hot = ids.toSorted((a, b) => laneOf(a) - laneOf(b))[0]!
    const others = ids.filter((id) => laneOf(id) !== laneOf(hot))
    yield* append(hot, hotEvents)
    yield* Effect.forEach(others, (id) => append(id, 1), { discard: true })

    const sizes: Array<number> = []
    const rounds: Array<ReadonlyArray<Lane>> = []
    const dispatcher = Dispatchers.start(
      (batch, broker) => {
        sizes.push(batch.records.length)
        return broker.publish(batch)
      },
      (queue) => ({
        fetch: (parts) =>
          Effect.tap(queue.fetch(parts), (fetched) =>
            Effect.sync(() => rounds.push(fetched.filter(({ events }) => events.length > 0).map(({ lane }) => lane)))
          )
      })
    )
    yield* Effect.provideService(dispatcher, QueueSettings, { batchSize, batchBytes: 900_000, archive: true })
    yield* Counters.drained
    assert.isAtMost(Math.max(...sizes), batchSize)
    const lastFirst = Math.max(...others.map(laneOf).map((lane) => rounds.findIndex((lanes) => lanes.includes(lane))))
    // The first rounds may come before the process owns all lanes.
    assert.isAtMost(lastFirst, 2, "rounds before the last of the other lanes")
    assert.isAtLeast(rounds.filter((lanes) => lanes.includes(laneOf(hot))).length, hotEvents / batchSize)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live(
  "an event that commits while a batch of its lane is in flight is sent right after it, and not by the poll",
  () =>
    Effect.gen(function* () {
      const sending = yield* Deferred.make<void>()
      const acknowledged = yield* Deferred.make<void>()
      const polls = Dispatchers.countPolls()
      yield* Dispatchers.start(
        (batch, broker) =>
          Effect.andThen(
            Effect.andThen(Deferred.succeed(sending, undefined), Deferred.await(acknowledged)),
            broker.publish(batch)
          ),
        (queue) => ({ ready: polls.counted(queue) })
      )
      yield* polls.ended
      yield* Transaction.run(Counters.create("busy"))
      yield* Deferred.await(sending)
      yield* Transaction.run(Counters.increment("busy"))
      yield* Deferred.succeed(acknowledged, undefined)
      yield* Counters.drained
      assert.deepStrictEqual(
        (yield* Counters.published).map(({ version }) => version),
        [1, 2, 3]
      )
    }).pipe(Effect.scoped, Effect.provide(writer))
)

/** The value of outbox_lane_failures_total. */
const laneFailures = Effect.map(Metric.snapshot, (metrics) =>
  metrics
    .filter(({ id }) => id === "outbox_lane_failures_total")
    .reduce((sum, metric) => sum + (metric.type === "Counter" ? Number(metric.state.count) : 0), 0)
)

it.live("a lane that ends in a defect waits alone: no worker sleeps for it, and all other lanes are sent", () =>
  Effect.gen(function* () {
    let isBroken = true
    let defects = 0
    const failuresBefore = yield* laneFailures
    const ids = Array.from({ length: 64 }, (_, index) => `aggregate-${index}`)
    const broken = new Set(ids.map(laneOf).filter((lane) => lane % 2 === 0))
    const context = yield* Layer.build(
      TestProcess.dispatcherOver(
        TestProcess.publishing((batch, broker) =>
          isBroken && broken.has(laneOf(batch.records[0].key))
            ? Effect.suspend(() => {
                defects++
                return Effect.die(new Error("broken on purpose"))
              })
            : broker.publish(batch)
        )
      ).pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })))
    )
    const workers = Context.get(context, LaneWorkers)
    yield* Effect.forEach(ids, (id) => Transaction.run(Counters.create(id)), { concurrency: 8, discard: true })
    const sound = ids.filter((id) => !broken.has(laneOf(id)))
    yield* Counters.eventually(
      "the sound lanes' events, and a second failure of each broken one",
      Effect.zipWith(
        Counters.published,
        workers.stopped,
        (records, stopped) =>
          records.length === sound.length &&
          stopped.length === broken.size &&
          stopped.every(({ attempt }) => attempt >= 2)
      )
    )
    assert.deepStrictEqual(
      (yield* (yield* Fibers).states)
        .filter(({ name }) => name.startsWith("dispatcher "))
        .filter(({ restarts }) => restarts > 0),
      []
    )
    isBroken = false
    yield* Counters.drained
    assert.strictEqual((yield* Counters.published).length, ids.length)
    // A turn ends a moment after the mark that empties the queue.
    yield* Counters.eventually(
      "no lane to be stopped",
      Effect.map(workers.stopped, (stopped) => stopped.length === 0)
    )
    assert.isAtLeast(defects, 2 * broken.size)
    // After a defect a batch of several lanes is sent again lane by lane: that defect counts for none of the lanes.
    const failures = (yield* laneFailures) - failuresBefore
    assert.isAtLeast(failures, 2 * broken.size)
    assert.isAtMost(failures, defects)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lane that is lost while its turn ends in a defect is no longer reported", () =>
  Effect.gen(function* () {
    const all = Array.from({ length: laneCount }, (_, lane) => lane)
    const held = yield* SubscriptionRef.make<ReadonlyArray<number>>(all)
    // The test decides which lanes are owned.
    const shares = Ownership.of({
      join: () =>
        Effect.succeed({
          held: SubscriptionRef.get(held),
          changes: SubscriptionRef.changes(held),
          use: (share, effect) =>
            Effect.flatMap(SubscriptionRef.get(held), (found) =>
              found.includes(share) ? Effect.asSome(effect) : Effect.succeedNone
            ),
          holds: (share) => SubscriptionRef.getUnsafe(held).includes(share),
          enter: (share) => SubscriptionRef.getUnsafe(held).includes(share),
          leave: () => undefined,
          setAble: () => Effect.void
        })
    })
    const isSending = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    const sent: Array<string> = []
    const context = yield* Layer.build(
      TestProcess.dispatcherOver(
        TestProcess.publishing((batch, broker) => {
          const { key } = batch.records[0]
          sent.push(key)
          return key === "a"
            ? Deferred.succeed(isSending, undefined).pipe(
                Effect.andThen(Deferred.await(goOn)),
                Effect.andThen(Effect.die(new Error("its connection was silent")))
              )
            : broker.publish(batch)
        })
      ).pipe(
        Layer.provide(Layer.succeed(Ownership, shares)),
        // With one worker the next turn begins after that one has ended.
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 }))
      )
    )
    const workers = Context.get(context, LaneWorkers)
    yield* Transaction.run(Counters.create("a"))
    yield* Deferred.await(isSending)
    yield* SubscriptionRef.set(
      held,
      all.filter((lane) => lane !== laneOf("a"))
    )
    const another = Array.from({ length: 100 }, (_, index) => `b${index}`).find((id) => laneOf(id) !== laneOf("a"))!
    yield* Transaction.run(Counters.create(another))
    yield* Deferred.succeed(goOn, undefined)
    yield* Counters.eventually(
      "the next turn",
      Effect.sync(() => sent.includes(another))
    )
    assert.deepStrictEqual(yield* workers.stopped, [])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lane that failed and has nothing left to send is healthy again", () =>
  Effect.gen(function* () {
    const control = yield* FaultInjection.FaultControl
    const context = yield* Layer.build(
      TestProcess.dispatcherOver((layer) => layer).pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, unpolled)))
    )
    const workers = Context.get(context, LaneWorkers)
    // The fault comes after the mark has committed, so the turn has nothing left to send.
    yield* control.set("dispatcher.after-mark", { action: "fail", times: 1, delayMillis: 0 })
    yield* Transaction.run(Counters.create("a"))
    yield* Counters.eventually(
      "the failure",
      Effect.map(control.list, (faults) => faults.length === 0)
    )
    yield* Counters.drained
    yield* Counters.eventually(
      "the lane to be healthy",
      Effect.map(workers.stopped, (stopped) => stopped.length === 0)
    )
    assert.strictEqual((yield* Counters.published).length, 1)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(FaultInjection.layer()))
)

for (const [name, fails, lookMillis] of [
  [
    "what an outage stopped is tried again when its wait is over, however seldom the poll comes",
    Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away once" })),
    0
  ],
  [
    "nor does it wait where each look for ready lanes takes longer than the pause that it was begun in",
    Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away once" })),
    600
  ],
  [
    "what a defect stopped is tried again when its wait is over, however seldom the poll comes",
    Effect.die(new Error("broken once")),
    0
  ]
] as const) {
  it.live(name, () =>
    Effect.gen(function* () {
      let tries = 0
      const steps = TestProcess.dispatcherStepsOver(
        TestProcess.publishing((batch, broker) => (tries++ === 0 ? fails : broker.publish(batch)))
      )
      const slowly = Layer.effect(
        Queue,
        Effect.map(Queue, (queue) => ({
          ...queue,
          ready: (views: ReadonlyArray<LaneView>) => Effect.tap(queue.ready(views), Effect.sleep(lookMillis))
        }))
      ).pipe(Layer.provideMerge(steps))
      yield* Layer.build(
        Dispatching.over(slowly).pipe(
          Layer.provide(Layer.succeed(LaneWorkersSettings, unpolled)),
          Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 300, backoffCapMillis: 300 }))
        )
      )
      yield* Transaction.run(Counters.create("a"))
      yield* Counters.drained
      assert.strictEqual((yield* Counters.published).length, 1)
      assert.strictEqual(tries, 2)
    }).pipe(
      Effect.scoped,
      Effect.provide(writer),
      // Delays are the longest possible, so that none ends before the poll has seen it.
      Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.99, nextIntUnsafe: () => 1 })
    )
  )
}

it.live("turns without work show that they are alive, however often the lanes are polled", () =>
  Effect.gen(function* () {
    const context = yield* Layer.build(
      TestProcess.dispatcher.pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })))
    )
    const { states } = Context.get(Context.merge(yield* Effect.context<Fibers>(), context), Fibers)
    const lastOf = (name: string) =>
      Effect.map(states, (all) => all.find((fiber) => fiber.name === name)?.lastProgressMillis ?? 0)
    for (let turn = 0; turn < 2; turn++) {
      const before = yield* lastOf("dispatcher turns")
      yield* Counters.eventually(
        "the turns to show progress",
        Effect.map(lastOf("dispatcher turns"), (now) => now > before)
      )
    }
  }).pipe(Effect.scoped, Effect.provide(writer))
)
