/** The dispatcher without decorators (src/Dispatching.ts) keeps the four rules. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Ref } from "effect"
import * as Dispatching from "../../src/Dispatching.ts"
import { type Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { LaneOwnership } from "../../src/outbox/LaneOwnership.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { PollRequests } from "../../src/outbox/PollRequests.ts"
import { QueueSettings } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Ledger from "../support/Ledger.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Effect.andThen(Ledger.makeTables, Counters.makeTables)).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** One more process with a plain dispatcher, on the same database; it ends with the scope. */
const start = <R>(change: (layer: typeof TestProcess.broker) => Layer.Layer<Broker, never, R>) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    const steps = Layer.merge(Dispatching.plainSteps, PollRequests.layer).pipe(
      Layer.provideMerge(change(TestProcess.broker))
    )
    return yield* Layer.build(
      Layer.fresh(
        LaneWorkers.layer.pipe(
          Layer.provide(Dispatcher.layer),
          Layer.provide(LaneOwnership.layer),
          Layer.provide(steps),
          Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })),
          Layer.provide(Layer.succeed(QueueSettings, { batchSize: 5, batchBytes: 900_000, archive: true })),
          Layer.provideMerge(TestProcess.outbox),
          Layer.provide(Layer.succeed(TestDatabase, database))
        )
      )
    )
  })

const ids = Array.from({ length: 12 }, (_, index) => `ledger-${index}`)
const write = Effect.forEach(
  Array.from({ length: 8 }).flatMap(() => ids),
  (id) => Transaction.run(Ledger.append(id, 2)),
  { concurrency: 4, discard: true }
)

it.live("through outages, lost acks and dispatchers that come and go, nothing is lost and nothing overtaken", () =>
  Effect.gen(function* () {
    const sends = yield* Ref.make(0)
    const unreliable = TestProcess.publishing((batch, broker) =>
      Effect.flatMap(
        Ref.updateAndGet(sends, (n) => n + 1),
        (send) =>
          send % 3 === 0
            ? Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
            : send % 7 === 0
              ? Effect.andThen(
                  broker.publish(batch),
                  Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "the ack was lost" }))
                )
              : broker.publish(batch)
      )
    )
    const load = yield* Effect.forkChild(write)
    for (let round = 0; round < 2; round++) yield* Effect.scoped(start(unreliable))
    yield* start(unreliable)
    yield* start(unreliable)
    yield* Fiber.join(load)
    yield* Counters.drained
    const { committed, problems } = Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
    assert.deepStrictEqual(problems, [])
    assert.strictEqual(committed, ids.length * 16)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a refused event holds its aggregate and no other, and its attempts go on until it is accepted", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* Refusals.append("sound", 1, 4)
    yield* start(Refusals.over(topic))
    yield* Refusals.untilPublished("sound", 4)
    yield* Refusals.until("poison", "retrying")
    topic.refused.clear()
    yield* Refusals.untilPublished("poison", 4)
    assert.deepStrictEqual(Counters.firstDeliveries(yield* Counters.published).get("poison"), [1, 2, 3, 4])
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 1_000 })))
)
