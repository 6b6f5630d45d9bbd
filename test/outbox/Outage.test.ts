/** The cost of an outage of the broker: little work, less and less often, independent of its length and of the backlog. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Ref, SubscriptionRef } from "effect"
import { TestClock } from "effect/testing"
import { Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { PartitionPauses, PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { laneCount, laneOf } from "../../src/outbox/Lane.ts"
import { InFlightSettings } from "../../src/outbox/LaneParts.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { QueueSettings } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Ledger from "../support/Ledger.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const backlog = 200
const batchSize = 10
/** The lanes share the space of these batches, and each lane may have one event in any case. */
const batches = 4
const mostEvents = batches * batchSize + laneCount

it.live("during an outage a process holds a bounded part of the backlog", () =>
  Effect.gen(function* () {
    for (let index = 0; index < backlog; index++) yield* Transaction.run(Ledger.append(`ledger-${index % 50}`, 10))
    const down = yield* Ref.make(true)
    const now = { events: 0, most: 0, largest: 0, tries: 0 }
    const hanging = (broker: Broker["Service"]) =>
      Broker.of({
        ...broker,
        publish: (batch) =>
          Effect.acquireUseRelease(
            Effect.sync(() => {
              now.events += batch.records.length
              now.tries++
              now.most = Math.max(now.most, now.events)
              now.largest = Math.max(now.largest, batch.records.length)
            }),
            () =>
              Effect.flatMap(Ref.get(down), (isDown) =>
                isDown
                  ? // As a black hole does, but sooner.
                    Effect.andThen(
                      Effect.sleep("20 millis"),
                      Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "no answer" }))
                    )
                  : broker.publish(batch)
              ),
            () => Effect.sync(() => (now.events -= batch.records.length))
          )
      })
    yield* Layer.build(
      TestProcess.dispatcherOver((layer) =>
        Layer.effect(Broker, Effect.map(Broker, hanging)).pipe(Layer.provide(layer))
      ).pipe(
        Layer.provide(Layer.succeed(QueueSettings, { batchSize, batchBytes: 900_000, archive: true })),
        Layer.provide(Layer.succeed(InFlightSettings, { batches })),
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 10 })),
        Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 5, backoffCapMillis: 20 }))
      )
    )
    yield* Counters.eventually(
      "many rounds of failed attempts",
      Effect.sync(() => now.tries > 80)
    )
    assert.isAtMost(now.most, mostEvents)
    assert.isAtMost(now.largest, batchSize)
    yield* Ref.set(down, false)
    yield* Counters.drained
    const { problems } = Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
    assert.deepStrictEqual(problems, [])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

const base = 100
const cap = 30_000

/** A broker that is not reachable: none of its methods is ever called. */
const absent = Layer.effect(
  Broker,
  Effect.map(SubscriptionRef.make(false), (available) => {
    const away = Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "absent" }))
    return Broker.of({ name: "absent", available, ensureTopic: () => away, publish: () => away, consume: () => away })
  })
)

it.effect(
  "the waits of an outage grow with full jitter up to half a minute, and no further, however long it lasts",
  () =>
    Effect.gen(function* () {
      yield* Transaction.run(Ledger.append("ledger"))
      const dispatcher = yield* Dispatcher
      const pauses = yield* PartitionPauses
      const isPaused = Effect.map(pauses.runningIn(laneOf("ledger")), (topics) => topics.length > 0)
      let early = 0
      for (let attempt = 1; attempt <= 40; attempt++) {
        assert.strictEqual(yield* dispatcher.drainOnce([laneOf("ledger")]), "idle")
        assert.deepStrictEqual(
          (yield* pauses.all).map(({ attempt }) => attempt),
          [attempt],
          "each failure counts, and the event stays where it is"
        )
        const longest = Math.min(cap, base * 2 ** (attempt - 1))
        yield* TestClock.adjust(longest / 2)
        if (!(yield* isPaused)) early++
        yield* TestClock.adjust(longest / 2)
        assert.isFalse(yield* isPaused, `attempt ${attempt} waits for ${longest} ms at most`)
      }
      // Full jitter ends half of the delays in their first half. Of forty delays neither none nor all do so: 1 in 10¹¹.
      assert.isAbove(early, 0)
      assert.isBelow(early, 40)
    }).pipe(
      Effect.provide(
        Dispatcher.layer.pipe(
          Layer.provideMerge(TestProcess.dispatcherStepsOver(() => absent)),
          Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: base, backoffCapMillis: cap })),
          Layer.provideMerge(writer)
        )
      )
    )
)
