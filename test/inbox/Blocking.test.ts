/**
 * The inbox without parking: an event that can't be applied stops its partition. Nothing is lost, applied twice or applied in the wrong order, and
 * the partition goes on once the event can be applied.
 */
import type { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Broker } from "../../src/brokers/Broker.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { Holds } from "../../src/inbox/holds/Holds.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import * as Plain from "../../src/plain/Plain.ts"
import * as PlainParking from "../../src/plain/PlainParking.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, everything, holdOn, makePartition, makeSubscriber, markedOf, record, retryAll, topic } =
  Deliveries

const process = Deliveries.process
const blocking = Layer.fresh(ApplySlice.layer).pipe(Layer.provide(Holds.layerBlocking))

/** Sends the records to one partition of the topic, in their order. */
const publish = Effect.fnUntraced(function* (partition: number, records: ReadonlyArray<ReturnType<typeof record>>) {
  const broker = yield* Broker
  yield* broker.ensureTopic(topic, 2)
  for (const one of records) yield* broker.publish({ topic, partition, records: [one] })
})

/** A consumer of the whole topic, for as long as the scope lives. */
const consume = (subscriber: Subscriber, holds: Layer.Layer<Holds, never, PgClient.PgClient | SqlClient.SqlClient>) =>
  Layer.build(Layer.fresh(Plain.consumer(subscriber)).pipe(Layer.provide(holds)))

const untilApplied = (consumer: string, id: string, count: number) =>
  Counters.eventually(
    `${count} events of ${id} to be applied`,
    Effect.map(effectsOf(consumer, id), (versions) => versions.length >= count)
  )

const timesOf = (handled: ReadonlyArray<string>, event: string) => handled.filter((one) => one === event).length

it.live(
  "an event that fails stops its partition and no other, and the partition goes on in order once it is mended",
  () =>
    Effect.gen(function* () {
      const { broken, handled, subscriber } = makeSubscriber("one")
      broken.set("poison/2", Effect.fail(new Error("out of paper")))
      yield* publish(0, [
        record("neighbour", 1),
        record("poison", 1),
        record("poison", 2),
        record("neighbour", 2),
        record("poison", 3),
        record("poison", 2)
      ])
      yield* publish(1, [record("sound", 1), record("sound", 2)])
      yield* consume(subscriber, Plain.blocking)
      yield* untilApplied("one", "sound", 2)
      yield* Counters.eventually(
        "the event to be tried again",
        Effect.sync(() => timesOf(handled, "poison/2") >= 4)
      )
      yield* publish(1, [record("sound", 3)])
      yield* untilApplied("one", "sound", 3)
      assert.deepStrictEqual(yield* effectsOf("one", "poison"), [1])
      assert.deepStrictEqual(yield* effectsOf("one", "neighbour"), [1])
      assert.strictEqual((yield* markedOf("one")).size, 5)
      const { holds, letters, parked } = yield* everything
      assert.deepStrictEqual([holds, parked, letters], [[], [], []])

      broken.clear()
      yield* untilApplied("one", "poison", 3)
      yield* publish(0, [record("neighbour", 3)])
      yield* untilApplied("one", "neighbour", 3)
      for (const id of ["poison", "neighbour", "sound"]) assert.deepStrictEqual(yield* effectsOf("one", id), [1, 2, 3])
      assert.strictEqual((yield* markedOf("one")).size, 9)
    }).pipe(Effect.scoped, Effect.provide(process))
)

it.live("an unreadable record stops its partition, and a consumer with parking goes on where it stopped", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = makeSubscriber("one")
    yield* publish(0, [record("a", 1)])
    const broker = yield* Broker
    yield* broker.publish({ topic, partition: 0, records: [{ ...Deliveries.garbage("b"), key: "b" }] })
    yield* publish(0, [record("a", 2)])
    yield* publish(1, [record("sound", 1)])
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* consume(subscriber, Plain.blocking)
        yield* untilApplied("one", "sound", 1)
        yield* untilApplied("one", "a", 1)
      })
    )
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])

    yield* consume(subscriber, PlainParking.inbox)
    yield* untilApplied("one", "a", 2)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    assert.strictEqual((yield* sql`SELECT FROM inbox_dead_letters WHERE aggregate_id = 'b'`).length, 1)
  }).pipe(Effect.scoped, Effect.provide(process))
)

it.live("an event that comes too early comes again until its turn has come", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const [early, late] = [makePartition(0), makePartition(1)]
    const slice = early.slice([record("b", 1), record("a", 2), record("b", 2)])
    assert.isTrue(Exit.isFailure(yield* Effect.exit(deliver(subscriber, slice))))
    assert.strictEqual(early.state.committed, 0n)
    assert.deepStrictEqual([yield* effectsOf("one", "a"), yield* effectsOf("one", "b")], [[], [1]])
    yield* deliver(subscriber, late.slice([record("a", 1)]))
    yield* deliver(subscriber, slice)
    assert.strictEqual(early.state.committed, 3n)
    for (const id of ["a", "b"]) assert.deepStrictEqual(yield* effectsOf("one", id), [1, 2])
  }).pipe(Effect.provide(blocking), Effect.provide(process))
)

it.live("what an earlier consumer parked stops the partition until a consumer with parking has applied it", () =>
  Effect.gen(function* () {
    // It would begin with any version of an aggregate that it does not know.
    const { broken, subscriber } = makeSubscriber("one", "any-version")
    broken.set("a/1", Effect.fail(new Error("out of paper")))
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1)]))
    assert.include(yield* holdOn("one", "a"), { status: "retrying" })
    const next = partition.slice([record("a", 2)])
    const blocked = yield* Effect.exit(Effect.provide(deliver(subscriber, next), blocking))
    assert.isTrue(Exit.isFailure(blocked))
    assert.strictEqual(partition.state.committed, 1n)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [])
    yield* deliver(subscriber, next)
    broken.clear()
    yield* retryAll(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
  }).pipe(Effect.provide(process))
)
