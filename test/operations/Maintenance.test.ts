/** Upkeep on a clock that is set forward: it makes and drops partitions, and never delays a session. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer } from "effect"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { Queue, QueueSettings } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Retention from "../../src/platform/Retention.ts"
import * as Counters from "../support/Counters.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { linesOf } from "../support/LogLines.ts"
import { publishAll } from "../support/Published.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { idAt } from "../support/SqlIds.ts"
import * as TestProcess from "../support/TestProcess.ts"

const { RetentionSettings } = Retention

/** A database of its own with the settable clock and the counters. */
const world = Layer.effectDiscard(Effect.andThen(DatabaseClock.install, Counters.makeTables)).pipe(
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** The marks of a consumer that has applied all published events. */
const applyAll = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* sql`
    INSERT INTO processed_events SELECT 'consumer', event_id, clock_now() FROM event_log ON CONFLICT DO NOTHING`
})

const partitions = Effect.fnUntraced(function* (table: string) {
  const sql = yield* PgClient.PgClient
  const rows = yield* sql<{ readonly days: number }>`
    SELECT ((from_time AT TIME ZONE 'UTC')::date - (clock_now() AT TIME ZONE 'UTC')::date)::int4 AS days
    FROM time_partitions(${table}) WHERE NOT is_default`
  return rows.map(({ days }) => days)
})

const count = Effect.fnUntraced(function* (table: string) {
  const sql = yield* PgClient.PgClient
  const [row] = yield* sql<{ readonly rows: number }>`SELECT count(*)::int4 AS rows FROM ${sql(table)}`
  return row!.rows
})

const day = (id: number) =>
  Effect.gen(function* () {
    yield* Transaction.run(Counters.create(`counter-${id}`))
    yield* publishAll
    yield* applyAll
  })

const outcomes = (report: Maintenance.Report) => report.map(({ outcome, table }) => `${table} ${outcome}`)

it.live("partitions exist ahead of their day, and each day is dropped whole after its retention", () =>
  Effect.gen(function* () {
    for (let today = 0; today < 14; today++) {
      yield* day(today)
      yield* Maintenance.runOnce()
      // A second round finds nothing to do.
      assert.deepStrictEqual(yield* Maintenance.runOnce(), [])
      const oldest = (retention: number) => -Math.min(today + 1, retention)
      const daysFrom = (first: number) => Array.from({ length: 5 - first }, (_, index) => first + index)
      assert.deepStrictEqual(yield* partitions("event_log"), daysFrom(oldest(3)))
      assert.deepStrictEqual(yield* partitions("processed_events"), daysFrom(oldest(8)))
      assert.strictEqual(yield* count("event_log"), Math.min(today + 1, 4))
      assert.strictEqual(yield* count("event_log_default"), 0)
      assert.strictEqual(yield* count("processed_events_default"), 0)
      yield* DatabaseClock.advance("1 day")
    }
    assert.strictEqual(yield* count("counters"), 14)
  }).pipe(Effect.provide(world))
)

const horizon = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const rows = yield* sql<{ readonly at: string }>`
    SELECT table_name || ' ' || forgotten_before AT TIME ZONE 'UTC' AS at FROM retention ORDER BY table_name`
  return rows.map(({ at }) => at)
})
const keeping = (days: number) =>
  Effect.provideService(RetentionSettings, { outboxDays: days, inboxDays: days, taskDays: days })

it.live("the horizon is at the end of what was dropped or after it, and never moves back", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* day(1)
    yield* DatabaseClock.advance("5 days")
    assert.deepStrictEqual(yield* horizon, [])
    yield* Maintenance.runOnce({ dryRun: true }).pipe(keeping(2))
    assert.deepStrictEqual(yield* horizon, [])
    assert.include(outcomes(yield* Maintenance.runOnce().pipe(keeping(2))), "event_log dropped")
    const first = yield* horizon
    assert.strictEqual(first.length, 3)
    const [kept] = yield* sql<{ readonly isBehind: boolean }>`
      SELECT bool_and(from_time <= forgotten_before + interval '1 day' AND to_time > forgotten_before) AS "isBehind"
      FROM retention, LATERAL (SELECT * FROM time_partitions(table_name) WHERE NOT is_default ORDER BY from_time LIMIT 1) AS oldest`
    assert.isTrue(kept!.isBehind)
    // A process with more days, or with 0, does not bring deleted rows back.
    yield* Maintenance.runOnce().pipe(keeping(30))
    yield* Maintenance.runOnce().pipe(keeping(0))
    assert.deepStrictEqual(yield* horizon, first)
    yield* DatabaseClock.advance("1 day")
    yield* Maintenance.runOnce().pipe(keeping(2))
    const second = yield* horizon
    for (const [index, at] of second.entries())
      assert.isAbove(Date.parse(at.slice(at.indexOf(" "))), Date.parse(first[index]!.slice(at.indexOf(" "))))
  }).pipe(Effect.provide(world))
)

it.live("two processes of the service that keep things for different times are named in a warning", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* Maintenance.noteKept.pipe(keeping(3))
    yield* sql`UPDATE retention SET noted_by = '7@elsewhere'`
    assert.deepStrictEqual(yield* linesOf(Maintenance.noteKept.pipe(keeping(3))), [])
    yield* sql`UPDATE retention SET noted_by = '7@elsewhere'`
    const lines = yield* linesOf(Maintenance.noteKept.pipe(keeping(0)))
    assert.strictEqual(lines.length, 3)
    for (const line of lines)
      assert.match(
        line,
        new RegExp(`^Warn retention: ${process.pid}@.* keeps .* for ever, and 7@elsewhere has kept it for 3 days`)
      )
    assert.deepStrictEqual(
      [...(yield* Retention.noted).values()].map(({ days }) => days),
      [0, 0, 0]
    )
  }).pipe(Effect.provide(world))
)

it.live("retention of 0 days keeps everything", () =>
  Effect.gen(function* () {
    yield* day(1)
    yield* DatabaseClock.advance("400 days")
    yield* Maintenance.runOnce()
    assert.strictEqual(yield* count("event_log"), 1)
    assert.strictEqual(yield* count("processed_events"), 1)
  }).pipe(Effect.provide(world), Effect.provideService(RetentionSettings, { outboxDays: 0, inboxDays: 0, taskDays: 0 }))
)

it.live("an event that waits in the queue is never dropped, however old it is", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Counters.create("waiting"))
    yield* DatabaseClock.advance("100 days")
    yield* Maintenance.runOnce()
    assert.deepStrictEqual(yield* Counters.queuedVersions("waiting"), [1])
    // It is published now. Its row is young, and archive and inbox keep it for their whole retention, although its id is old.
    yield* publishAll
    yield* applyAll
    yield* Maintenance.runOnce()
    assert.strictEqual(yield* count("event_log"), 1)
    yield* DatabaseClock.advance("4 days")
    yield* Maintenance.runOnce()
    assert.strictEqual(yield* count("event_log"), 0)
    assert.strictEqual(yield* count("processed_events"), 1)
    yield* DatabaseClock.advance("5 days")
    yield* Maintenance.runOnce()
    assert.strictEqual(yield* count("processed_events"), 0)
  }).pipe(Effect.provide(world))
)

it.live("a day with a row that came late is kept until that row is old as well", () =>
  Effect.gen(function* () {
    yield* day(1)
    yield* Transaction.run(Counters.create("late"))
    yield* DatabaseClock.advance("3 days 20 hours")
    // Published late, into the partition of its day, which still exists.
    yield* publishAll
    yield* DatabaseClock.advance("1 day")
    const report = yield* Maintenance.runOnce()
    assert.include(outcomes(report), "event_log kept")
    assert.strictEqual(yield* count("event_log"), 2)
    yield* DatabaseClock.advance("3 days")
    assert.include(outcomes(yield* Maintenance.runOnce()), "event_log dropped")
    assert.strictEqual(yield* count("event_log"), 0)
  }).pipe(Effect.provide(world))
)

it.live("a drop gives up while a session reads the archive, and a later round does it", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* day(1)
    yield* DatabaseClock.advance("5 days")
    const reading = yield* Deferred.make<void>()
    const release = yield* Deferred.make<void>()
    const reader = yield* Effect.forkChild(
      sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`SELECT count(*) FROM event_log`
          yield* Deferred.succeed(reading, undefined)
          yield* Deferred.await(release)
        })
      )
    )
    yield* Deferred.await(reading)
    const report = yield* Maintenance.runOnce()
    assert.include(outcomes(report), "event_log busy")
    assert.notInclude(outcomes(report), "event_log dropped")
    assert.strictEqual(yield* count("event_log"), 1)
    yield* Deferred.succeed(release, undefined)
    yield* Fiber.join(reader)
    assert.deepStrictEqual(
      outcomes(yield* Maintenance.runOnce()).filter((outcome) => outcome.startsWith("event_log")),
      [...Array.from({ length: 6 }, () => "event_log made"), ...Array.from({ length: 3 }, () => "event_log dropped")]
    )
    assert.strictEqual(yield* count("event_log"), 0)
  }).pipe(Effect.provide(world))
)

it.live("an open mark delays a drop, and not the making of days", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* day(1)
    yield* DatabaseClock.advance("5 days")
    yield* Maintenance.runOnce()
    yield* Transaction.run(Counters.create("marked"))
    yield* DatabaseClock.advance("2 days")
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* publishAll
        const report = yield* Maintenance.runOnce().pipe(withoutTransaction(sql))
        assert.deepStrictEqual(
          outcomes(report).filter((outcome) => outcome.startsWith("event_log")),
          ["event_log made", "event_log made", "event_log busy"]
        )
      })
    )
    assert.include(outcomes(yield* Maintenance.runOnce()), "event_log dropped")
  }).pipe(
    Effect.provide(world),
    Effect.provideService(RetentionSettings, { outboxDays: 5, inboxDays: 8, taskDays: 30 })
  )
)

it.live("a business transaction with its locks does not stop a drop, and never waits for one", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* day(1)
    yield* DatabaseClock.advance("5 days")
    // This transaction has the locks of a payment: its aggregate's row, and its events in the queue.
    yield* Transaction.run(
      Effect.gen(function* () {
        yield* Counters.increment("counter-1")
        const report = yield* Maintenance.runOnce().pipe(withoutTransaction(sql))
        assert.include(outcomes(report), "event_log dropped")
        assert.include(outcomes(report), "event_log made")
        assert.deepStrictEqual(Maintenance.unfinished(report), [])
      })
    )
    // While drops wait for a reader, transactions commit that give up after waiting a millisecond for any lock.
    yield* Transaction.run(Counters.create("again"))
    yield* publishAll
    yield* DatabaseClock.advance("5 days")
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`SELECT count(*) FROM event_log`
        const dropping = yield* Effect.forkChild(
          Effect.replicateEffect(Maintenance.runOnce(), 5).pipe(withoutTransaction(sql))
        )
        let committed = 0
        while (dropping.pollUnsafe() === undefined || committed < 20) {
          yield* Transaction.run(
            Effect.gen(function* () {
              const { sql } = yield* Transaction
              yield* sql`SELECT set_config('lock_timeout', '1ms', true)`
              yield* Counters.increment("counter-1")
            })
          ).pipe(withoutTransaction(sql))
          committed++
        }
        const reports = yield* Fiber.join(dropping)
        for (const report of reports) assert.include(outcomes(report), "event_log busy")
      })
    )
  }).pipe(Effect.provide(world))
)

/** On another connection than the surrounding transaction. */
const withoutTransaction =
  (sql: PgClient.PgClient) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.updateContext(effect, (context) => Context.omit(sql.transactionService)(context) as typeof context)

it.live("several processes that run upkeep at once do each step once, and none fails", () =>
  Effect.gen(function* () {
    yield* day(1)
    yield* DatabaseClock.advance("6 days")
    const reports = yield* Effect.all(
      Array.from({ length: 4 }, () => Maintenance.runOnce()),
      { concurrency: "unbounded" }
    )
    assert.isAbove(reports.flat().length, 0)
    yield* Maintenance.runOnce()
    assert.deepStrictEqual(yield* Maintenance.runOnce(), [])
    assert.deepStrictEqual(yield* partitions("event_log"), [-3, -1, 0, 1, 2, 3, 4])
  }).pipe(Effect.provide(world))
)

it.live("a day that is made late takes over its rows from the default partition", () =>
  Effect.gen(function* () {
    // No upkeep ran for a week.
    yield* DatabaseClock.advance("7 days")
    yield* day(1)
    assert.strictEqual(yield* count("event_log_default"), 1)
    const report = yield* Maintenance.runOnce()
    assert.deepStrictEqual(
      report.filter(({ rows }) => rows !== undefined).map(({ outcome, rows, table }) => [table, outcome, rows]),
      [
        ["event_log", "made", 1],
        ["processed_events", "made", 1]
      ]
    )
    assert.strictEqual(yield* count("event_log_default"), 0)
    assert.strictEqual(yield* count("event_log"), 1)
    assert.include(yield* partitions("event_log"), 0)
    // The mark is found in its new partition: the same event is still a duplicate.
    yield* applyAll
    assert.strictEqual(yield* count("processed_events"), 1)
  }).pipe(Effect.provide(world))
)

it.live(
  "too many rows of a day stay in the default partition, and are deleted there in bounded steps when they are old",
  () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      yield* DatabaseClock.advance("7 days")
      yield* sql`
      INSERT INTO processed_events
      SELECT 'consumer', ${sql.literal(idAt("clock_now()"))}, clock_now() FROM generate_series(1, 12000)`
      const first = yield* Maintenance.runOnce()
      assert.include(outcomes(first), "processed_events blocked")
      assert.strictEqual(yield* count("processed_events_default"), 12_000)
      assert.deepStrictEqual(yield* partitions("processed_events"), [-8, -7, -6, -5, -4, -1, 1, 2, 3, 4])
      yield* DatabaseClock.advance("9 days")
      const deleted = (report: Maintenance.Report) =>
        report.filter(({ outcome }) => outcome === "deleted").map(({ partition, rows }) => [partition, rows])
      const expected = [["processed_events_default", 12_000]]
      assert.deepStrictEqual(deleted(yield* Maintenance.runOnce({ dryRun: true })), expected)
      assert.strictEqual(yield* count("processed_events_default"), 12_000)
      assert.deepStrictEqual(deleted(yield* Maintenance.runOnce()), expected)
      assert.strictEqual(yield* count("processed_events_default"), 0)
    }).pipe(Effect.provide(world))
)

it.live("a dry run changes nothing and reports what the run then does", () =>
  Effect.gen(function* () {
    yield* day(1)
    yield* DatabaseClock.advance("10 days")
    const before = [yield* partitions("event_log"), yield* partitions("processed_events")]
    const told = yield* Maintenance.runOnce({ dryRun: true })
    assert.deepStrictEqual([yield* partitions("event_log"), yield* partitions("processed_events")], before)
    assert.isAbove(told.length, 0)
    assert.deepStrictEqual(yield* Maintenance.runOnce(), told)
  }).pipe(Effect.provide(world))
)

it.live("with the archive off, published events are deleted and leave no row behind", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Counters.create("gone"))
    yield* publishAll
    assert.deepStrictEqual(yield* Counters.queuedVersions("gone"), [])
    assert.strictEqual(yield* count("event_log"), 0)
    assert.strictEqual(yield* count("outbox_status"), 0)
  }).pipe(
    Effect.provide(world),
    Effect.provideService(QueueSettings, { batchSize: 1_000, batchBytes: 900_000, archive: false })
  )
)
