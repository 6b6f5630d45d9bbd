/** A topic gets more partitions, or fewer, while dispatchers start and stop. Updates of the embedded broker's tables stand in for an operator's tools. */
import { assert, it } from "@effect/vitest"
import { Array, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { PartitionCounts } from "../../src/operations/PartitionCounts.ts"
import * as CheckedTopics from "../../src/operations/CheckedTopics.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import { TopicChecks } from "../../src/operations/TopicChecks.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** A process on the test's database. */
const processOf = <A, E, R>(layer: Layer.Layer<A, E, R>) =>
  Effect.flatMap(TestDatabase, (database) =>
    Layer.build(
      Layer.fresh(
        layer.pipe(Layer.provideMerge(TestProcess.outbox), Layer.provide(Layer.succeed(TestDatabase, database)))
      )
    )
  )
const startDispatcher = processOf(
  TestProcess.dispatcher.pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })))
)
/** Checks and publisher alone. */
const startPublisher = Effect.map(
  processOf(
    CheckedTopics.layer.pipe(
      Layer.provideMerge(Layer.merge(Publisher.layer, TopicChecks.layer)),
      Layer.provideMerge(TestProcess.broker)
    )
  ),
  (context) => ({ ...Context.get(context, Publisher), ...Context.get(context, TopicChecks) })
)

/** Sets the topic's number of partitions: more than before, or fewer, as if the topic were made anew. */
const alter = Effect.fnUntraced(function* (partitions: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE broker_topics SET partitions = ${partitions} WHERE topic = ${Counters.topic}`
  yield* sql`DELETE FROM broker_partitions WHERE topic = ${Counters.topic} AND partition >= ${partitions}`
  yield* sql`
    INSERT INTO broker_partitions (topic, partition)
    SELECT ${Counters.topic}, number FROM generate_series(0, ${partitions}::int4 - 1) AS number ON CONFLICT DO NOTHING`
})

const ids = Array.makeBy(24, (index) => `counter-${index}`)
const writeTo = (write: (id: string) => ReturnType<typeof Counters.create>) =>
  Effect.forEach(ids, (id) => Transaction.run(write(id)), { discard: true })

it.live("an aggregate stays in its partition when the topic grows, also in dispatchers that start after that", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    yield* writeTo(Counters.create)
    yield* Counters.drained
    yield* alter(16)
    yield* startDispatcher
    yield* startDispatcher
    yield* Effect.forEach(
      Array.makeBy(10, (round) => round),
      () => writeTo(Counters.increment),
      { discard: true }
    )
    yield* Counters.drained
    const places = Array.groupBy(yield* Counters.published, ({ id }) => id)
    for (const id of ids) {
      const records = places[id] ?? []
      assert.strictEqual(new Set(records.map(({ partition }) => partition)).size, 1, id)
      assert.deepStrictEqual(
        Counters.firstDeliveries(records).get(id),
        Array.makeBy(21, (index) => index + 1)
      )
    }
  }).pipe(Effect.provide(writer))
)

it.live("a topic that grew is used as before, and a finding says how to use all of it", () =>
  Effect.gen(function* () {
    const one = yield* startPublisher
    assert.strictEqual(yield* one.prepare(Counters.topic), 8)
    yield* alter(16)
    const other = yield* startPublisher
    assert.strictEqual(yield* other.prepare(Counters.topic), 8)
    for (const { inspect, prepare } of [one, other]) {
      const { findings, partitions } = yield* inspect(Counters.topic)
      assert.strictEqual(partitions, 8)
      assert.deepStrictEqual(
        findings.map(({ kind }) => kind),
        ["weak"]
      )
      assert.match(
        findings[0]!.sentence,
        /^it has 16 partitions, and events go to the first 8, .*UPDATE outbox_topics SET partitions = 16 WHERE topic = 'counters'/
      )
      assert.strictEqual(yield* prepare(Counters.topic), 8)
    }
    // The operator does what the sentence says.
    const sql = yield* SqlClient.SqlClient
    yield* sql`UPDATE outbox_topics SET partitions = 16 WHERE topic = 'counters'`
    assert.deepStrictEqual((yield* one.inspect(Counters.topic)).findings, [])
    assert.strictEqual(yield* one.prepare(Counters.topic), 16)
    assert.strictEqual(yield* (yield* startPublisher).prepare(Counters.topic), 16)
  }).pipe(Effect.provide(writer))
)

it.live(
  "a topic that grew to a number that does not divide the lanes is used as before, and restarts are not refused",
  () =>
    Effect.gen(function* () {
      const one = yield* startPublisher
      assert.strictEqual(yield* one.prepare(Counters.topic), 8)
      for (const [partitions, sentence] of [
        [12, /^it has 12 partitions, and events go to the first 8, .* no more of them can be used/],
        [24, /^it has 24 partitions, and events go to the first 8, .* to use 16 of them, .* SET partitions = 16 WHERE/],
        [128, /^it has 128 partitions, .* to use 64 of them, .* SET partitions = 64 WHERE/]
      ] as const) {
        yield* alter(partitions)
        for (const { inspect, prepare } of [one, yield* startPublisher]) {
          const { findings } = yield* inspect(Counters.topic)
          assert.deepStrictEqual(
            findings.map(({ kind }) => kind),
            ["weak"]
          )
          assert.match(findings[0]!.sentence, sentence)
          assert.strictEqual(yield* prepare(Counters.topic), 8)
        }
      }
    }).pipe(Effect.provide(writer))
)

it.live(
  "publishing pauses for a topic made anew with fewer partitions, until it has them or an operator accepts them",
  () =>
    Effect.gen(function* () {
      const one = yield* startPublisher
      yield* one.prepare(Counters.topic)
      yield* alter(4)
      yield* one.inspect(Counters.topic)
      for (const { prepare } of [one, yield* startPublisher]) {
        const error = yield* Effect.flip(prepare(Counters.topic))
        assert.strictEqual(error._tag, "TopicUnavailable")
        assert.match(error.message, /it has 4 partitions, and its lanes are spread over 8: make it anew with 8/)
      }
      yield* alter(8)
      assert.strictEqual(yield* one.prepare(Counters.topic), 8)
      yield* alter(4)
      yield* one.inspect(Counters.topic)
      const sql = yield* SqlClient.SqlClient
      yield* sql`UPDATE outbox_topics SET partitions = 4 WHERE topic = 'counters'`
      assert.strictEqual(yield* one.prepare(Counters.topic), 4)
    }).pipe(Effect.provide(writer))
)

it.live("all processes that note different counts of a new topic at once get the same one", () =>
  Effect.gen(function* () {
    const { note, noted } = yield* PartitionCounts
    assert.isUndefined(yield* noted("contested"))
    const answers = yield* Effect.forEach([8, 16, 8, 16, 32, 8, 64, 16], (found) => note("contested", found), {
      concurrency: "unbounded"
    })
    assert.strictEqual(new Set(answers).size, 1)
    assert.strictEqual(yield* note("contested", 1), answers[0])
    assert.strictEqual(yield* noted("contested"), answers[0])
    assert.strictEqual(yield* note("another", 2), 2)
  }).pipe(Effect.provide(PartitionCounts.layer.pipe(Layer.provideMerge(TestDatabase.layerPool))))
)

it.live("the count of a topic that was never fit is not noted", () =>
  Effect.gen(function* () {
    const { inspect, prepare } = yield* startPublisher
    yield* inspect(Counters.topic)
    const sql = yield* SqlClient.SqlClient
    yield* sql`DELETE FROM outbox_topics`
    yield* alter(12)
    assert.match((yield* inspect(Counters.topic)).findings[0]!.sentence, /^it has 12 partitions: 64 lanes/)
    assert.match((yield* Effect.flip(prepare(Counters.topic))).message, /it has 12 partitions/)
    yield* alter(16)
    assert.strictEqual(yield* prepare(Counters.topic), 16)
  }).pipe(Effect.provide(writer))
)
