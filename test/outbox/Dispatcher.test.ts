import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Logger, Ref, References } from "effect"
import { SqlClient } from "effect/sql"
import { Broker, BrokerUnavailable, MessageRejected } from "../../src/brokers/Broker.ts"
import * as Consumer from "../../src/inbox/Consumer.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import { PartitionPauses, PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { Lane, laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { Queue, QueueSettings } from "../../src/outbox/Queue.ts"
import { Ownership } from "../../src/platform/Ownership.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { WakeupSettings } from "../../src/platform/Wakeups.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

/** A writer's process: the outbox and no dispatcher, on a database of its own. */
const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** One more process with a dispatcher, on the same database; it ends with the scope. */
const startDispatcher = Effect.gen(function* () {
  const database = yield* TestDatabase
  return yield* Layer.build(
    Layer.fresh(
      TestProcess.dispatcher.pipe(
        Layer.provideMerge(TestProcess.outbox),
        Layer.provide(Layer.succeed(TestDatabase, database))
      )
    )
  )
})

const write = (aggregates: ReadonlyArray<string>, increments: number) =>
  Effect.gen(function* () {
    yield* Effect.forEach(aggregates, (id) => Transaction.run(Counters.create(id)), { discard: true })
    yield* Effect.forEach(
      Array.from({ length: increments }).flatMap(() => aggregates),
      (id) => Transaction.run(Counters.increment(id)),
      { concurrency: 6, discard: true }
    )
  })

const ids = (count: number) => Array.from({ length: count }, (_, index) => `counter-${index}`)

const upTo = (version: number) => Array.from({ length: version }, (_, index) => index + 1)

/** The first deliveries of every aggregate are its versions 1 … n, in order. */
const assertInOrder = (
  records: Effect.Success<typeof Counters.published>,
  aggregates: ReadonlyArray<string>,
  last: number
) => {
  const deliveries = Counters.firstDeliveries(records)
  for (const id of aggregates) assert.deepStrictEqual(deliveries.get(id), upTo(last), id)
}

it.live("committed events are published in version order, and the queue ends empty", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    yield* write(ids(20), 10)
    yield* Counters.drained
    const records = yield* Counters.published
    assert.strictEqual(records.length, 20 * 21)
    assertInOrder(records, ids(20), 21)
  }).pipe(Effect.provide(writer))
)

it.live("published events are archived with their partition and offset", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    yield* write(ids(5), 3)
    yield* Counters.drained
    const sql = yield* SqlClient.SqlClient
    const archived = yield* sql`
      SELECT aggregate_id AS id, aggregate_version AS version, broker_partition AS partition, broker_offset AS "offset"
      FROM event_log ORDER BY broker_partition, broker_offset`
    assert.deepStrictEqual(archived, yield* Counters.published)
  }).pipe(Effect.provide(writer))
)

it.live("an event whose id is already archived is sent once, like the events behind it, and a warning names it", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* Transaction.run(Counters.create("a"))
    yield* Effect.andThen(startDispatcher, Counters.drained).pipe(Effect.scoped)
    for (let turn = 0; turn < 2; turn++) yield* Transaction.run(Counters.increment("a"))
    // Version 2 has the id of a published event, and version 4 the id of version 3, in the same batch.
    yield* sql`UPDATE outbox_events SET event_id = (SELECT event_id FROM event_log) WHERE aggregate_version = 2`
    yield* sql`
      UPDATE outbox_events SET event_id = (SELECT event_id FROM outbox_events WHERE aggregate_version = 3)
      WHERE aggregate_version = 4`
    const shared = yield* sql<{ readonly id: string }>`
      SELECT event_id::text AS id FROM outbox_events WHERE aggregate_version IN (2, 4)`
    const warned: Array<unknown> = []
    const logger = Logger.make(({ fiber }) => {
      const { event_id } = fiber.getRef(References.CurrentLogAnnotations)
      if (event_id !== undefined) warned.push(event_id)
    })
    yield* startDispatcher.pipe(
      Effect.provideService(References.MinimumLogLevel, "Warn"),
      Effect.provide(Logger.layer([logger]))
    )
    yield* Counters.drained
    assert.deepStrictEqual(
      (yield* Counters.published).map(({ version }) => version),
      upTo(5)
    )
    const archived = yield* sql<{ readonly version: number; readonly offset: bigint }>`
      SELECT aggregate_version AS version, broker_offset AS "offset" FROM event_log ORDER BY 1`
    assert.deepStrictEqual(
      archived,
      [1, 3, 5].map((version) => ({ version, offset: BigInt(version - 1) }))
    )
    assert.sameMembers(
      warned,
      shared.map(({ id }) => id)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a late committer with a smaller sequence number is still published", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    const appended = yield* Deferred.make<void>()
    const release = yield* Deferred.make<void>()
    const late = yield* Effect.forkChild(
      Transaction.run(
        Counters.create("late").pipe(
          Effect.andThen(Deferred.succeed(appended, undefined)),
          Effect.andThen(Deferred.await(release))
        )
      )
    )
    yield* Deferred.await(appended)
    yield* write(ids(30), 2)
    yield* Counters.drained
    yield* Deferred.succeed(release, undefined)
    yield* Fiber.join(late)
    yield* Counters.drained
    assertInOrder(yield* Counters.published, ["late"], 1)
  }).pipe(Effect.provide(writer))
)

it.live("two dispatchers that come and go under load keep the order of every aggregate", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    const load = yield* Effect.forkChild(write(ids(30), 25))
    for (let round = 0; round < 3; round++) yield* Effect.scoped(startDispatcher)
    yield* startDispatcher
    yield* Fiber.join(load)
    yield* Counters.drained
    assertInOrder(yield* Counters.published, ids(30), 51)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("with small batches and every wake-up lost, the poll drains the queue in order", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    yield* write(ids(10), 10)
    yield* Counters.drained
    assertInOrder(yield* Counters.published, ids(10), 21)
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(
      Layer.mergeAll(
        Layer.succeed(QueueSettings, { batchSize: 3, batchBytes: 200, archive: true }),
        Layer.succeed(WakeupSettings, { crossProcess: false }),
        Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })
      )
    )
  )
)

for (const point of ["dispatcher.after-fetch", "dispatcher.after-publish", "dispatcher.after-mark"] as const) {
  it.live(`a failure ${point} loses nothing and keeps the order`, () =>
    Effect.gen(function* () {
      const control = yield* FaultInjection.FaultControl
      yield* startDispatcher
      yield* control.set(point, { action: "fail", times: 3, delayMillis: 0 })
      yield* write(ids(10), 5)
      yield* Counters.drained
      assert.deepStrictEqual(yield* control.list, [])
      assertInOrder(yield* Counters.published, ids(10), 11)
    }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(FaultInjection.layer()))
  )
}

it.live("a lost ack duplicates whole batches and never overtakes", () =>
  Effect.gen(function* () {
    const control = yield* FaultInjection.FaultControl
    yield* startDispatcher
    yield* control.set("dispatcher.before-publish", { action: "lose-ack", times: 5, delayMillis: 0 })
    yield* write(ids(10), 5)
    yield* Counters.drained
    const records = yield* Counters.published
    assert.isAbove(records.length, 10 * 11)
    assertInOrder(records, ids(10), 11)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(FaultInjection.layer()))
)

it.live("an outage of the broker pauses its topic, and everything is delivered after it", () =>
  Effect.gen(function* () {
    const attempts = yield* Ref.make(0)
    const down = yield* Ref.make(true)
    const context = yield* startDispatcherWith((broker) => ({
      ...broker,
      publish: (batch) =>
        Effect.flatMap(
          Effect.andThen(
            Ref.update(attempts, (n) => n + 1),
            Ref.get(down)
          ),
          (isDown) =>
            isDown ? Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "down" })) : broker.publish(batch)
        )
    }))
    yield* write(ids(10), 5)
    yield* Counters.eventually(
      "a few failed attempts",
      Effect.map(Ref.get(attempts), (n) => n >= 3)
    )
    const [paused] = yield* Effect.flatMap(PartitionPauses, ({ all }) => all).pipe(Effect.provideContext(context))
    assert.strictEqual(paused?.topic, Counters.topic)
    assert.strictEqual((yield* Counters.published).length, 0)
    yield* Ref.set(down, false)
    yield* Counters.drained
    assertInOrder(yield* Counters.published, ids(10), 11)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a topic that refuses everything delays no other topic, and nothing of it is lost", () =>
  Effect.gen(function* () {
    const refuse = yield* Ref.make(true)
    const others = yield* Ref.make(0)
    yield* startDispatcherWith((broker) => ({
      ...broker,
      publish: (batch) =>
        Effect.flatMap(Ref.get(refuse), (isRefusing) =>
          isRefusing && batch.topic === Counters.topic
            ? Effect.fail(new MessageRejected({ topic: batch.topic, partition: batch.partition, reason: "too large" }))
            : Effect.tap(
                broker.publish(batch),
                Ref.update(others, (n) => n + batch.records.length)
              )
        )
    }))
    yield* write(ids(3), 1)
    // The same lanes contain events of another topic, behind the refused ones.
    const outbox = yield* Outbox
    yield* Transaction.run(
      Effect.forEach(
        ids(3),
        (id) =>
          outbox.append({ topic: "others", aggregateType: "Other", aggregateId: id }, 1, [
            { eventType: "Happened", schemaVersion: 1, data: {} }
          ]),
        { discard: true }
      )
    )
    yield* Counters.eventually(
      "the other topic's events",
      Effect.map(Ref.get(others), (n) => n === 3)
    )
    assert.strictEqual((yield* Counters.published).length, 0)
    yield* Ref.set(refuse, false)
    yield* Refusals.dueNow
    yield* Counters.eventually(
      "all refused events",
      Effect.map(Counters.published, (records) => records.length >= 9)
    )
    assertInOrder(yield* Counters.published, ids(3), 3)
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 1, maxAttempts: 100, skipTopics: [] }))
  )
)

it.live("a batch that the topic refuses is sent in halves, left before right", () =>
  Effect.gen(function* () {
    yield* write(ids(1), 40)
    yield* startDispatcherWith((broker) => ({
      ...broker,
      publish: (batch) =>
        batch.records.length > 5
          ? Effect.fail(new MessageRejected({ topic: batch.topic, partition: batch.partition, reason: "too large" }))
          : broker.publish(batch)
    }))
    yield* Counters.drained
    const records = yield* Counters.published
    assert.deepStrictEqual(
      records.map((record) => record.version),
      upTo(81)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a backlog of one lane fits the topic's limit, however small or large its events are", () =>
  Effect.gen(function* () {
    const outbox = yield* Outbox
    const stream = (id: string) => ({ topic: Counters.topic, aggregateType: "Other", aggregateId: id })
    const event = (data: unknown) => ({ eventType: "Happened", schemaVersion: 1, data })
    // A thousand events of one aggregate with envelopes larger than their data, behind two events that are just below the limit.
    const large = "x".repeat(880_000)
    yield* Transaction.run(outbox.append(stream("one"), 1, [event(large), event(large)]))
    const many = Array.from({ length: 1_500 }, () => event("y".repeat(400)))
    yield* Transaction.run(outbox.append(stream("one"), 3, [many[0]!, ...many.slice(1)]))
    const rejections = yield* Ref.make(0)
    yield* startDispatcherWith((broker) => ({
      ...broker,
      publish: (batch) => Effect.tapError(broker.publish(batch), () => Ref.update(rejections, (n) => n + 1))
    }))
    yield* Counters.drained
    assert.strictEqual(yield* Ref.get(rejections), 0)
    const deliveries = Counters.firstDeliveries(yield* Counters.published)
    assert.deepStrictEqual(deliveries.get("one"), upTo(1_502))
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lane's events are fetched in queue order, whatever their order in the table is", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const seq of [30, 10, 20]) {
      yield* sql`
        INSERT INTO outbox_events (lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,
                                   aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)
        OVERRIDING SYSTEM VALUE
        VALUES (0, ${seq}::int8, gen_random_uuid(), 'counters', 'Counted', 1, 'Counter', 'c', ${seq / 10}::int4, clock_now(),
                repeat('0', 32), repeat('0', 16), 100, '{}')`
    }
    // Without statistics the planner uses the index, which returns the right order by itself. The test needs the ORDER BY to do it.
    yield* sql`ANALYZE outbox_events`
    const queue = yield* Queue
    const events = yield* Lanes.fetch(queue, Lane.make(0), [])
    assert.deepStrictEqual(
      events.map((event) => event.aggregateVersion),
      [1, 2, 3]
    )
  }).pipe(Effect.scoped, Effect.provide(Queue.layer.pipe(Layer.provideMerge(writer))))
)

it.live("a dispatcher sends only the events of its own lanes", () =>
  Effect.gen(function* () {
    const shares = yield* Ownership
    // A member that owns half of the lanes and sends nothing.
    const idle = yield* shares.join("dispatcher", 64)
    yield* Counters.eventually(
      "all lanes to be held",
      Effect.map(idle.held, (held) => held.length === 64)
    )
    const context = yield* startDispatcher
    const workers = yield* Effect.provideContext(Effect.service(LaneWorkers), context)
    yield* Counters.eventually(
      "the lanes to be shared",
      Effect.map(workers.lanes, (held) => held.length === 32)
    )
    yield* write(ids(60), 1)
    const own = new Set(yield* workers.lanes)
    const expected = ids(60).filter((id) => own.has(laneOf(id)))
    yield* Counters.eventually(
      "its own lanes to be drained",
      Effect.map(Counters.published, (records) => records.length >= 3 * expected.length)
    )
    assert.deepStrictEqual(
      [...Counters.firstDeliveries(yield* Counters.published).keys()].toSorted(),
      expected.toSorted()
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("two kinds of aggregate may share an id and a topic", () =>
  Effect.gen(function* () {
    yield* startDispatcher
    const outbox = yield* Outbox
    for (const aggregateType of ["Cart", "Checkout"]) {
      yield* Transaction.run(
        outbox.append({ topic: Counters.topic, aggregateType, aggregateId: "1" }, 1, [
          { eventType: "Begun", schemaVersion: 1, data: {} }
        ])
      )
    }
    yield* Counters.drained
    assert.strictEqual((yield* Counters.published).length, 2)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a clean stop sends nothing twice", () =>
  Effect.gen(function* () {
    const load = yield* Effect.forkChild(write(ids(20), 10))
    for (let round = 0; round < 5; round++) {
      yield* Effect.scoped(
        Effect.andThen(
          startDispatcher,
          Effect.gen(function* () {
            const before = (yield* Counters.published).length
            yield* Counters.eventually(
              "some more events, or all of them",
              Effect.map(Counters.published, (records) => records.length > before || records.length >= 20 * 21)
            )
          })
        )
      )
    }
    yield* Fiber.join(load)
    yield* Effect.scoped(Effect.andThen(startDispatcher, Counters.drained))
    const records = yield* Counters.published
    assert.strictEqual(records.length, 20 * 21)
    assertInOrder(records, ids(20), 21)
  }).pipe(Effect.provide(writer))
)

it.live("each event has one effect per consumer, in order, whatever fails on the way", () =>
  Effect.gen(function* () {
    const control = yield* FaultInjection.FaultControl
    yield* startDispatcher
    for (const point of [
      "consumer.after-decode",
      "consumer.before-handler",
      "consumer.before-commit",
      "consumer.after-commit",
      "consumer.after-offset",
      "dispatcher.after-publish"
    ] as const)
      yield* control.set(point, { action: "fail", times: 3, delayMillis: 0 })
    yield* startConsumers(["one", "two"])
    yield* write(ids(10), 10)
    yield* Counters.drained
    const sql = yield* SqlClient.SqlClient
    yield* Counters.eventually(
      "all effects",
      Effect.map(sql`SELECT 1 AS one FROM effects`, (rows) => rows.length >= 2 * 10 * 21)
    )
    for (const consumer of ["one", "two"]) {
      const rows = yield* sql<{ readonly id: string; readonly version: number }>`
        SELECT id, version FROM effects WHERE consumer = ${consumer} ORDER BY position`
      assert.strictEqual(rows.length, 10 * 21)
      for (const id of ids(10)) {
        assert.deepStrictEqual(
          rows.filter((row) => row.id === id).map((row) => row.version),
          upTo(21)
        )
      }
    }
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(FaultInjection.layer()))
)

/** Like `startDispatcher`, with a broker that the test has changed. */
const startDispatcherWith = (change: (broker: Broker["Service"]) => Broker["Service"]) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    return yield* Layer.build(
      Layer.fresh(
        TestProcess.dispatcherOver((layer) =>
          Layer.effect(Broker, Effect.map(Broker, change)).pipe(Layer.provide(layer))
        ).pipe(
          Layer.provideMerge(TestProcess.outbox),
          Layer.provide(Layer.succeed(TestDatabase, database)),
          Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })),
          Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 1, backoffCapMillis: 20 }))
        )
      )
    )
  })

/** One more process, with consumers that record their events. */
const startConsumers = (names: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    const subscriber = (name: string): Subscriber => ({
      name,
      topic: Counters.topic,
      firstSight: "from-version-1",
      handle: Effect.fnUntraced(function* (event) {
        const { sql } = yield* Transaction
        yield* sql`INSERT INTO effects (consumer, id, version) VALUES (${name}, ${event.aggregateId}, ${event.aggregateVersion}::int4)`
      })
    })
    yield* Layer.build(
      Layer.fresh(
        Layer.mergeAll(Layer.empty, ...names.map((name) => Consumer.layer(subscriber(name)))).pipe(
          Layer.provide(Deliveries.plainSteps),
          Layer.provide(Inbox.layer),
          Layer.provide(TestProcess.broker),
          Layer.provide(TestProcess.outbox),
          Layer.provide(Layer.succeed(TestDatabase, database))
        )
      )
    )
  })
