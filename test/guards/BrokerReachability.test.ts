/** If a process alone can't reach the broker, other processes publish the events of its lanes. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Ref } from "effect"
import { Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { PartitionPauses, PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { laneCount, laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { ReachabilitySettings } from "../../src/guards/BrokerReachability.ts"
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

/** The dispatcher of a separate process, which reaches the broker while `isNear` is true. */
const start = Effect.fnUntraced(function* (isNear: Ref.Ref<boolean>) {
  const away = (operation: string) => new BrokerUnavailable({ operation, cause: "cut off" })
  let unanswered = 0
  const over = <R>(layer: Layer.Layer<Broker, never, R>) =>
    Layer.effect(
      Broker,
      Effect.map(Broker, (broker) => {
        const near = <A, E, R>(operation: string, effect: Effect.Effect<A, E, R>) =>
          Effect.flatMap(Ref.get(isNear), (now): Effect.Effect<A, E | BrokerUnavailable, R> =>
            now ? effect : Effect.fail(away(operation))
          )
        return Broker.of({
          ...broker,
          publish: (batch) => near("publish", broker.publish(batch)),
          ensureTopic: (topic, partitions) => near("ensure topic", broker.ensureTopic(topic, partitions)),
          reach: () => Effect.tapError(near("reach", Effect.void), () => Effect.sync(() => unanswered++))
        })
      })
    ).pipe(Layer.provide(layer))
  const context = yield* Layer.build(
    Layer.fresh(
      TestProcess.dispatcherOver(over).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
        // Within the test only an answer of the broker ends a pause.
        Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 2 ** 40, backoffCapMillis: 2 ** 40 }))
      )
    )
  )
  const workers = Context.get(context, LaneWorkers)
  return { lanes: workers.lanes, pauses: Context.get(context, PartitionPauses).all, unanswered: () => unanswered }
})

type Process = Effect.Success<ReturnType<typeof start>>

const dealt = (processes: ReadonlyArray<Process>, parts: ReadonlyArray<number>) =>
  Counters.eventually(
    `lanes to be dealt ${parts.join(", ")}`,
    Effect.map(
      Effect.forEach(processes, ({ lanes }) => lanes),
      (held) => held.map((lanes) => lanes.length).join() === parts.join()
    )
  )

/** One event in each lane. */
const ids = Array.from({ length: laneCount }, (_, lane) => {
  for (let index = 0; ; index++) if (laneOf(`ledger-${index}`) === lane) return `ledger-${index}`
})
const write = Effect.forEach(ids, (id) => Transaction.run(Ledger.append(id, 1)), { discard: true })
const soon = Effect.provideService(ReachabilitySettings, { strandedMillis: 50, askMillis: 50 })

it.live("the lanes of a process that can't reach the broker go to those that can, and come back once it can", () =>
  Effect.gen(function* () {
    const isNear = yield* Ref.make(true)
    const one = yield* start(isNear)
    const two = yield* start(yield* Ref.make(true))
    const both = [one, two]
    yield* dealt(both, [32, 32])
    yield* write
    yield* Counters.drained
    yield* Ref.set(isNear, false)
    yield* write
    yield* Counters.drained
    yield* dealt(both, [0, 64])
    yield* Ref.set(isNear, true)
    yield* dealt(both, [32, 32])
    yield* write
    yield* Counters.drained
    assert.deepStrictEqual(yield* one.pauses, [])
    const { problems } = Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
    assert.deepStrictEqual(problems, [])
  }).pipe(Effect.scoped, Effect.provide(writer), soon)
)

it.live("if no process reaches the broker, all keep their lanes, and publish once it is back", () =>
  Effect.gen(function* () {
    const isNear = yield* Ref.make(true)
    const both = [yield* start(isNear), yield* start(isNear)]
    yield* dealt(both, [32, 32])
    yield* Ref.set(isNear, false)
    yield* write
    // Until then a process does not know that it can't reach the broker, and this test is not about that time.
    yield* Counters.eventually(
      "both to have asked",
      Effect.sync(() => both.every(({ unanswered }) => unanswered() > 0))
    )
    yield* dealt(both, [32, 32])
    yield* Ref.set(isNear, true)
    yield* Counters.drained
    yield* dealt(both, [32, 32])
    const { problems } = Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
    assert.deepStrictEqual(problems, [])
  }).pipe(Effect.scoped, Effect.provide(writer), soon)
)
