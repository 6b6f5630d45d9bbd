/**
 * The inbox's rules, with the service's fast layers and without: each event has one effect, in version order of its aggregate. A failing
 * event delays its own aggregate only. A member that has lost its partition does no harm.
 */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Latch, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { EmbeddedBrokerSettings } from "../../src/brokers/embedded/EmbeddedBroker.ts"
import { Broker } from "../../src/brokers/Broker.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import * as Arrival from "../../src/inbox/Arrival.ts"
import * as Consumer from "../../src/inbox/Consumer.ts"
import { FastPath } from "../../src/inbox/FastPath.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import * as Consumers from "../../src/main/Consumers.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as OneStatementClaim from "../../src/postgres/fast/OneStatementClaim.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, holdOn, idOf, makePartition, makeSubscriber, markedOf, parkedOf, record, retryAll } =
  Deliveries

const upTo = (version: number) => Array.from({ length: version }, (_, index) => index + 1)
const ids = upTo(6).map((id) => `id-${id}`)
const settings = Layer.mergeAll(
  Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 3 }),
  // A member that leaves stops waiting for a hanging handler.
  Layer.effect(
    EmbeddedBrokerSettings,
    Effect.map(EmbeddedBrokerSettings, (defaults) => ({ ...defaults, graceMillis: 100 }))
  )
)

const compositions: ReadonlyArray<readonly [name: string, steps: Deliveries.Steps]> = [
  ["plain", Deliveries.plainSteps],
  ["with the fast layers", Consumers.steps]
]

it.live("the inbox has no fast path of its own, and the service gives it one", () =>
  Effect.gen(function* () {
    const arrivals = [Arrival.make(Deliveries.topic, 0, { ...record("a", 1), offset: 0n })]
    const marked = Effect.flatMap(FastPath, (fastPath) => Transaction.run(fastPath("one", arrivals)))
    assert.isUndefined(yield* marked)
    assert.isDefined(yield* Effect.provide(marked, OneStatementClaim.layer))
  }).pipe(Effect.provide(Deliveries.processWith(Deliveries.plainSteps)))
)

for (const [name, steps] of compositions) {
  const process = Layer.provideMerge(Deliveries.processWith(steps), settings)

  describe(name, () => {
    it.live("each event has its effect once, also if it is delivered twice, and the offset follows the commit", () =>
      Effect.gen(function* () {
        const { subscriber } = makeSubscriber("one")
        const sent = upTo(10).flatMap((version) => ids.map((id) => record(id, version)))
        for (const size of [60, 7, 1]) {
          const partition = makePartition()
          for (let at = 0; at < sent.length; at += size) {
            yield* deliver(subscriber, partition.slice(sent.slice(at, at + size)))
          }
          assert.strictEqual(partition.state.committed, 60n)
        }
        for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), upTo(10))
        assert.strictEqual((yield* markedOf("one")).size, 60)
      }).pipe(Effect.provide(process))
    )

    it.live("events that come in the wrong order are applied in version order", () =>
      Effect.gen(function* () {
        const { subscriber } = makeSubscriber("one")
        const partition = makePartition()
        for (const version of [2, 5, 4, 3, 1]) {
          yield* deliver(subscriber, partition.slice(ids.map((id) => record(id, version))))
        }
        yield* retryAll(subscriber)
        for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), upTo(5))
      }).pipe(Effect.provide(process))
    )

    it.live(
      "an event that fails is parked and then dead, delays its own aggregate only, and is redriven in order",
      () =>
        Effect.gen(function* () {
          const letters = yield* InboxDeadLetters
          const { broken, subscriber } = makeSubscriber("one")
          broken.set("id-2/3", Effect.fail(new Error("out of paper")))
          const partition = makePartition()
          for (const version of upTo(6))
            yield* deliver(subscriber, partition.slice(ids.map((id) => record(id, version))))
          yield* retryAll(subscriber, 3)
          assert.strictEqual(partition.state.committed, 36n)
          for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), upTo(id === "id-2" ? 2 : 6))
          assert.include(yield* holdOn("one", "id-2"), { status: "dead", attempts: 3 })
          assert.deepStrictEqual(
            yield* parkedOf("one", "id-2"),
            [4, 5, 6].map((version) => idOf("id-2", version))
          )
          assert.isFalse((yield* markedOf("one")).has(idOf("id-2", 3)))

          broken.clear()
          yield* letters.retry("one", idOf("id-2", 3), { actor: "test", reason: "it has paper again" })
          yield* retryAll(subscriber)
          assert.deepStrictEqual(yield* effectsOf("one", "id-2"), upTo(6))
          assert.isUndefined(yield* holdOn("one", "id-2"))
        }).pipe(Effect.provide(process))
    )

    it.live("members that all believe to own the partition apply each event once, and in order", () =>
      Effect.gen(function* () {
        const { broken, subscriber } = makeSubscriber("one")
        broken.set("id-3/7", Effect.fail(new Error("out of paper")))
        const members = [
          yield* Effect.context<ApplySlice>(),
          yield* Layer.build(Deliveries.againWith(steps)),
          yield* Layer.build(Deliveries.againWith(steps))
        ]
        const partition = makePartition()
        const slices = upTo(12).map((version) => partition.slice(ids.map((id) => record(id, version))))
        yield* Effect.forEach(
          members,
          (member) =>
            Effect.forEach(slices, (slice) => Context.get(member, ApplySlice).run(subscriber, slice), {
              discard: true
            }),
          { concurrency: "unbounded", discard: true }
        )
        broken.clear()
        yield* retryAll(subscriber)
        for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), upTo(12))
      }).pipe(Effect.scoped, Effect.provide(process))
    )

    it.live("a consumer reads its topic to the end, also after a member has left in the middle of a slice", () =>
      Effect.gen(function* () {
        const broker = yield* Broker
        const sql = yield* SqlClient.SqlClient
        const { subscriber } = makeSubscriber("one")
        yield* broker.ensureTopic(Deliveries.topic, 4)
        for (const version of upTo(5)) {
          for (const [index, id] of ids.entries()) {
            yield* broker.publish({ topic: Deliveries.topic, partition: index % 4, records: [record(id, version)] })
          }
        }
        const isInside = yield* Latch.make()
        const hanging = { ...subscriber, handle: () => Effect.andThen(isInside.open, Effect.never) }
        yield* Effect.scoped(Effect.andThen(Layer.build(Consumer.layer(hanging)), isInside.await))
        yield* Layer.build(Consumer.layer(subscriber))
        yield* Counters.eventually(
          "all events to be applied",
          Effect.map(sql`SELECT 1 AS one FROM effects`, (rows) => rows.length >= 30)
        )
        for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), upTo(5))
      }).pipe(Effect.scoped, Effect.provide(process))
    )
  })
}
