import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer } from "effect"
import { laneOf } from "../../src/messaging/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/messaging/outbox/LaneWorkers.ts"
import { Outbox } from "../../src/messaging/outbox/Outbox.ts"
import { QueueSettings } from "../../src/messaging/outbox/OutboxQueue.ts"
import { Transaction } from "../../src/platform/database/Transaction.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as Counters from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const batchSize = 10
const hotEvents = 1_000

it.live("a hot lane can't starve the others: ready lanes take turns", () =>
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
    // The lowest lane is looked at first: the one that could crowd out all behind it.
    const ids = Array.from({ length: 200 }, (_, index) => `aggregate-${index}`)
    const hot = ids.toSorted((a, b) => laneOf(a) - laneOf(b))[0]!
    const others = ids.filter((id) => laneOf(id) !== laneOf(hot))
    yield* append(hot, hotEvents)
    yield* Effect.forEach(others, (id) => append(id, 1), { discard: true })

    const sends: Array<string> = []
    yield* Layer.build(
      TestProcess.dispatcherOver(
        TestProcess.publishing((batch, broker) =>
          Effect.andThen(
            Effect.sync(() => sends.push(batch.records[0].key)),
            broker.publish(batch)
          )
        )
      ).pipe(
        Layer.provide(Layer.succeed(QueueSettings, { batchSize, batchBytes: 900_000, archive: true })),
        // A single worker: what comes first is a matter of the line alone.
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 1_000, lanesSideBySide: 1, topics: [] }))
      )
    )
    yield* Counters.drained
    const lanes = new Set(others.map(laneOf)).size
    const lastOfOthers = sends.findLastIndex((id) => id !== hot)
    const hotBefore = sends.slice(0, lastOfOthers).filter((id) => id === hot).length
    assert.strictEqual(sends.filter((id) => id === hot).length, hotEvents / batchSize)
    // One turn before the others, and one or two more for those lanes that were taken while the process was still getting its share.
    assert.isAtMost(hotBefore, 3, `of ${lanes} other lanes the last was sent as number ${lastOfOthers}`)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live(
  "what is committed while a batch of its lane is in flight goes out right behind it, and not with the poll",
  () =>
    Effect.gen(function* () {
      const sending = yield* Deferred.make<void>()
      const acknowledged = yield* Deferred.make<void>()
      yield* Layer.build(
        TestProcess.dispatcherOver(
          TestProcess.publishing((batch, broker) =>
            Effect.andThen(
              Effect.andThen(Deferred.succeed(sending, undefined), Deferred.await(acknowledged)),
              broker.publish(batch)
            )
          )
        ).pipe(
          // An hour: far beyond what a test may take.
          Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 3_600_000, lanesSideBySide: 2, topics: [] }))
        )
      )
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

it.live("a lane that ends in a defect waits by itself: no worker sleeps for it, and all other lanes flow", () =>
  Effect.gen(function* () {
    let isBroken = true
    const ids = Array.from({ length: 64 }, (_, index) => `aggregate-${index}`)
    const broken = new Set(ids.map(laneOf).filter((lane) => lane % 2 === 0))
    const context = yield* Layer.build(
      TestProcess.dispatcherOver(
        TestProcess.publishing((batch, broker) =>
          isBroken && broken.has(laneOf(batch.records[0].key))
            ? Effect.die(new Error("broken on purpose"))
            : broker.publish(batch)
        )
      ).pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20, lanesSideBySide: 2, topics: [] })))
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
        .filter(({ name }) => name.startsWith("dispatcher worker"))
        .map(({ restarts }) => restarts),
      [0, 0]
    )
    isBroken = false
    yield* Counters.drained
    assert.strictEqual((yield* Counters.published).length, ids.length)
    assert.deepStrictEqual(yield* workers.stopped, [])
  }).pipe(Effect.scoped, Effect.provide(writer))
)
