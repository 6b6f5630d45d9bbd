/** What a topic that can't be reached is paused by, and until when. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Ref } from "effect"
import { BrokerUnavailable } from "../../src/messaging/broker/Broker.ts"
import { Dispatcher, DispatcherSettings } from "../../src/messaging/outbox/Dispatcher.ts"
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
