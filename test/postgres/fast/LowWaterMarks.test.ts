import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { laneOf } from "../../../src/outbox/Lane.ts"
import { places } from "../../../src/postgres/fast/LowWaterMarkRounds.ts"
import { LowWaterMarks } from "../../../src/postgres/fast/LowWaterMarks.ts"
import { Queue, QueueSettings } from "../../../src/outbox/Queue.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as Database from "../../../src/postgres/Database.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import * as Counters from "../../support/Counters.ts"
import * as Refusals from "../../support/Refusals.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import * as Lanes from "../../support/Lanes.ts"

/** Without an archive, which would already contain the rows that a test puts back by hand. */
const unarchived = Layer.succeed(QueueSettings, { batchSize: 1_000, batchBytes: 900_000, archive: false })

/** Separate connections. */
const pool = Layer.fresh(
  Layer.unwrap(TestDatabase.useSync(({ url }) => Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url })))))
)

/** A writer and the queue, without a dispatcher. */
const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(LowWaterMarks.layerQueue),
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet),
  Layer.provide(unarchived)
)

const lane = laneOf("early")
/** Another aggregate of the same lane. */
const neighbour = Array.from({ length: 10_000 }, (_, index) => `counter-${index}`).find((id) => laneOf(id) === lane)!

/** Marks the lane's events as published, and returns their aggregates. */
const publish = Effect.gen(function* () {
  const queue = yield* Queue
  const events = yield* Lanes.fetch(queue, lane, [])
  yield* Lanes.mark(queue, lane, events, { partition: 0, baseOffset: 0n })
  return events.map((event) => event.aggregateId)
})

/** More rounds than it takes to note the numbers, to wait and to raise the mark. */
const raise = Effect.flatMap(LowWaterMarks, (marks) => Effect.repeat(marks.raise([lane]), { times: 5 }))

/**
 * Raises the low-water mark above the row in `kept`, and puts that row back below the mark. A mark waits for every transaction of the
 * server, also of other tests. So this repeats until a fetch starts after the row.
 */
const putBackBelowFloor = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const queue = yield* Queue
  yield* Counters.eventually(
    "the low-water mark to be raised",
    Effect.gen(function* () {
      yield* raise
      yield* sql`INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM kept`
      if ((yield* Lanes.fetch(queue, lane, [])).length === 0) return true
      yield* publish
      return false
    })
  )
})

it.live("a low-water mark waits for uncommitted transactions with smaller numbers", () =>
  Effect.gen(function* () {
    const appended = yield* Deferred.make<void>()
    const release = yield* Deferred.make<void>()
    const early = yield* Effect.forkChild(
      Transaction.run(
        Counters.create("early").pipe(
          Effect.andThen(Deferred.succeed(appended, undefined)),
          Effect.andThen(Deferred.await(release))
        )
      )
    )
    yield* Deferred.await(appended)
    yield* Transaction.run(Counters.create(neighbour))
    assert.deepStrictEqual(yield* publish, [neighbour])
    yield* raise
    yield* Deferred.succeed(release, undefined)
    yield* Fiber.join(early)
    assert.deepStrictEqual(yield* publish, ["early"])
  }).pipe(Effect.provide(writer))
)

it.live("a low-water mark does not pass a queued event", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Counters.create("early"))
    yield* raise
    yield* Transaction.run(Counters.create(neighbour))
    yield* raise
    assert.deepStrictEqual(yield* publish, ["early", neighbour])
  }).pipe(Effect.provide(writer))
)

/** More rows than one round passes over. */
const backlog = Refusals.append("early", 1, 2_500, "away")
/** More rounds than it takes, while a topic can't be sent to. */
const raiseSecondMarks = Effect.flatMap(LowWaterMarks, (marks) =>
  Effect.repeat(
    marks.raise([lane], () => ["away"]),
    { times: 5 }
  )
)
const fetchBeside = Effect.flatMap(Queue, (queue) => Lanes.fetch(queue, lane, ["away", "closed"]))

it.live("a backlog that can't be sent is passed over once, and not at each fetch of later events", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const queue = yield* Queue
    const marks = yield* LowWaterMarks
    yield* backlog
    // A row from the middle: below the mark that leaves out the topic, and above the mark for all topics.
    yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events ORDER BY seq OFFSET 2000 LIMIT 1`
    const takeOut = sql`DELETE FROM outbox_events WHERE seq IN (SELECT seq FROM kept)`
    yield* takeOut
    yield* sql`UPDATE kept SET topic = 'counters'`
    yield* Counters.eventually(
      "the low-water mark to be raised",
      Effect.gen(function* () {
        yield* raiseSecondMarks
        // A test's own INSERT below the mark shows where the fetch starts.
        yield* sql`INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM kept`
        const isSeen = (yield* fetchBeside).length > 0
        if (isSeen) yield* takeOut
        return !isSeen
      })
    )
    assert.deepStrictEqual(yield* queue.ready([{ lane, withoutTopics: ["away"] }]), [])
    // An event that is appended now is above the mark, and is found.
    yield* Transaction.run(Counters.create(neighbour))
    assert.deepStrictEqual(
      (yield* fetchBeside).map(({ aggregateId }) => aggregateId),
      [neighbour]
    )
    assert.deepStrictEqual(yield* queue.ready([{ lane, withoutTopics: ["away"] }]), [lane])
    // A fetch that leaves out fewer topics starts at the lower mark.
    assert.strictEqual((yield* Lanes.fetch(queue, lane, ["closed"]))[0]?.topic, "away")
    yield* marks.forget([lane])
    assert.strictEqual((yield* fetchBeside).length, 2)
  }).pipe(Effect.provide(writer))
)

it.live("a low-water mark that leaves out a topic waits for uncommitted transactions, too", () =>
  Effect.gen(function* () {
    const appended = yield* Deferred.make<void>()
    const release = yield* Deferred.make<void>()
    const late = yield* Effect.forkChild(
      Transaction.run(
        Counters.create(neighbour).pipe(
          Effect.andThen(Deferred.succeed(appended, undefined)),
          Effect.andThen(Deferred.await(release))
        )
      )
    )
    yield* Deferred.await(appended)
    yield* backlog
    yield* raiseSecondMarks
    yield* Deferred.succeed(release, undefined)
    yield* Fiber.join(late)
    assert.deepStrictEqual(
      (yield* fetchBeside).map(({ aggregateId }) => aggregateId),
      [neighbour]
    )
  }).pipe(Effect.provide(writer))
)

it.live("a low-water mark that leaves out a topic does not pass an event that may return to the queue", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* Transaction.run(Counters.create(neighbour))
    yield* backlog
    // As for a refused event: it has a hold, and is parked.
    yield* sql`
      INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, next_attempt_at, held_at)
      SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, 1, clock_now(), clock_now() FROM outbox_events WHERE topic = 'counters'`
    yield* sql`
      WITH gone AS (DELETE FROM outbox_events WHERE topic = 'counters' RETURNING *) INSERT INTO outbox_parked SELECT * FROM gone`
    yield* raiseSecondMarks
    yield* sql`INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM outbox_parked`
    assert.deepStrictEqual(
      (yield* fetchBeside).map(({ aggregateId }) => aggregateId),
      [neighbour]
    )
  }).pipe(Effect.provide(writer))
)

it.live("an event that is inserted by hand below the low-water mark is late, and not lost", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* Transaction.run(Counters.create("early"))
    yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events`
    yield* publish
    yield* Transaction.run(Counters.create(neighbour))
    yield* publish
    yield* putBackBelowFloor
    const queue = yield* Queue
    const marks = yield* LowWaterMarks
    yield* Counters.eventually(
      "the whole lane to be looked at",
      Effect.andThen(
        marks.raise([lane]),
        Effect.map(Lanes.fetch(queue, lane, []), (events) => events.length > 0)
      )
    )
    assert.deepStrictEqual(yield* publish, ["early"])
  }).pipe(Effect.provide(writer))
)

it.live("a lane that was lost has no low-water mark when it comes back", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const marks = yield* LowWaterMarks
    yield* Transaction.run(Counters.create("early"))
    yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events`
    yield* publish
    // As after a crash before the mark: the row is queued again, with its old number.
    yield* putBackBelowFloor
    yield* marks.forget([lane])
    assert.deepStrictEqual(yield* publish, ["early"])
  }).pipe(Effect.provide(writer))
)

it.live("a lane that is lost while its low-water mark is raised has none when it comes back", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const marks = yield* LowWaterMarks
    yield* Transaction.run(Counters.create("early"))
    yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events`
    yield* publish
    // The loss of the lane during the first step, and during the second one.
    for (const step of [1, 2]) {
      if (step === 2) yield* marks.raise([lane])
      const raising = yield* Effect.forkChild(marks.raise([lane]))
      yield* Effect.yieldNow
      yield* marks.forget([lane])
      yield* Fiber.join(raising)
      yield* sql`INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM kept`
      assert.deepStrictEqual(yield* publish, ["early"])
    }
  }).pipe(Effect.provide(writer))
)

it.live("a low-water mark is void on a server that was restarted", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { name } = yield* TestDatabase
    yield* Transaction.run(Counters.create("early"))
    yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events`
    // The statements compare the server's start. In this database a test sets it, for connections that are opened from now on.
    yield* sql`CREATE TABLE server_start AS SELECT pg_postmaster_start_time() AS at`
    yield* sql`
      CREATE FUNCTION public.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM server_start'`
    yield* sql`ALTER DATABASE ${sql(name)} SET search_path = public, pg_catalog`
    yield* Effect.gen(function* () {
      yield* publish
      yield* putBackBelowFloor
      yield* sql`UPDATE server_start SET at = clock_timestamp()`
      assert.deepStrictEqual(yield* publish, ["early"])
    }).pipe(
      Effect.provide(
        Layer.fresh(LowWaterMarks.layerQueue.pipe(Layer.provideMerge(Queue.layer))).pipe(
          Layer.provide(pool),
          Layer.provide(unarchived)
        )
      )
    )
  }).pipe(Effect.provide(writer))
)

for (const { insert, table } of [
  {
    table: "outbox_parked",
    insert: `, hold AS (
        INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, held_at)
        SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, 1, clock_now() FROM moved
      )
      INSERT INTO outbox_parked SELECT * FROM moved`
  },
  {
    table: "outbox_dead_letters",
    insert: `INSERT INTO outbox_dead_letters SELECT moved.*, 'dead', 1, 'refused', '[]', clock_now() FROM moved`
  }
]) {
  it.live(`an event that waits in ${table} is not passed: it may return to the queue`, () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      // The first event is below the mark once that is raised, so a fetch without it shows that the mark is raised.
      yield* Transaction.run(Counters.create(neighbour))
      yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events`
      yield* publish
      yield* Transaction.run(Counters.create("early"))
      yield* sql.unsafe(`WITH moved AS (DELETE FROM outbox_events RETURNING *) ${insert}`)
      yield* putBackBelowFloor
      yield* sql.unsafe(`
        INSERT INTO outbox_events OVERRIDING SYSTEM VALUE
        SELECT lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
               occurred_at, trace_id, span_id, record_bytes, data
        FROM ${table}`)
      assert.deepStrictEqual(yield* publish, ["early"])
    }).pipe(Effect.provide(writer))
  )
}

it.live("every table from which an event may return to the queue is checked", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly table: string }>`
      SELECT c.relname AS table FROM pg_class AS c
      WHERE c.relkind IN ('r', 'p')
        AND (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname IN ('lane', 'seq', 'data')) = 3
      ORDER BY c.relname`
    assert.deepStrictEqual(
      rows.map((row) => row.table),
      places.map(({ table }) => table).toSorted()
    )
  }).pipe(Effect.provide(writer))
)
