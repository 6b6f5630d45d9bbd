/** Replays of published events. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { History, type ReplayCursor, type ReplayRange } from "../../src/operations/History.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { publishAll } from "../support/Published.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const world = Layer.effectDiscard(Effect.andThen(DatabaseClock.install, Counters.makeTables)).pipe(
  Layer.provideMerge(Layer.mergeAll(Queue.layer, History.layer)),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** A whole replay in pages of `limit`. */
const replay = Effect.fnUntraced(function* (range: ReplayRange, limit: number) {
  const history = yield* History
  const seen: Array<string> = []
  let after: ReplayCursor | undefined
  while (true) {
    const { events, next } = yield* history.replay(range, after, limit)
    assert.isAtMost(events.length, limit)
    if (next === undefined) return seen
    seen.push(...events.map((event) => `${event.aggregateId} ${event.aggregateVersion}`))
    after = next
  }
})

const ids = ["a", "b", "c"]
const all = (versions: ReadonlyArray<number>, of = ids) => of.flatMap((id) => versions.map((n) => `${id} ${n}`))

it.live("a replay brings each aggregate's published events in version order, in bounded pages", () =>
  Effect.gen(function* () {
    yield* Effect.forEach(ids, (id) => Transaction.run(Counters.create(id)))
    // The clock is set back: later versions carry earlier times and smaller ids.
    yield* DatabaseClock.advance("-1 hour")
    for (let n = 0; n < 6; n++) yield* Effect.forEach(ids, (id) => Transaction.run(Counters.increment(id)))
    const history = yield* History
    assert.deepStrictEqual(yield* replay({ topic: Counters.topic }, 10), [], "what waits was not published")
    yield* publishAll
    const versions = Array.from({ length: 13 }, (_, index) => index + 1)
    for (const limit of [1, 4, 1_000]) {
      assert.deepStrictEqual(yield* replay({ topic: Counters.topic }, limit), all(versions))
    }
    assert.deepStrictEqual(yield* replay({ topic: Counters.topic, aggregateId: "b" }, 5), all(versions, ["b"]))
    assert.deepStrictEqual(yield* replay({ topic: "other" }, 5), [])
    const [first] = (yield* history.replay({ topic: Counters.topic, aggregateId: "a" })).events
    assert.deepInclude(first, { eventType: "Counted", schemaVersion: 1, data: `{"value":0}`, offset: 0n })
  }).pipe(Effect.provide(world))
)

it.live("a replay of a range of days reads what occurred in it", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const noons: Array<Date> = []
    for (let day = 0; day < 3; day++) {
      const [row] = yield* sql<{ readonly now: Date }>`SELECT clock_now() AS now`
      noons.push(row!.now)
      yield* Effect.forEach(ids, (id) => Transaction.run(day === 0 ? Counters.create(id) : Counters.increment(id)))
      yield* DatabaseClock.advance("1 day")
    }
    yield* publishAll
    const { topic } = Counters
    assert.deepStrictEqual(yield* replay({ topic, to: noons[1]! }, 2), all([1]))
    assert.deepStrictEqual(yield* replay({ topic, from: noons[1]!, to: noons[2]! }, 2), all([2, 3]))
    assert.deepStrictEqual(yield* replay({ topic, from: noons[2]! }, 2), all([4, 5]))
    // Postgres does not read the partitions of days outside of the range.
    const plan = yield* sql<Record<string, string>>`
      EXPLAIN SELECT * FROM event_log
      WHERE event_id >= uuid_v7_floor_at(${noons[1]!}::timestamptz) AND event_id < uuid_v7_floor_at(${noons[2]!}::timestamptz)`
    const scanned = JSON.stringify(plan).match(/event_log_\d{8}/g)
    assert.strictEqual(new Set(scanned).size, 2)
  }).pipe(Effect.provide(world))
)

it.live("a range of time is exact where an id was drawn a moment before its event was written", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const { topic } = Counters
    yield* Transaction.run(Counters.create("skewed-1"))
    yield* publishAll
    const [event] = yield* sql<{ readonly at: Date; readonly from: Date; readonly to: Date }>`
      UPDATE event_log SET occurred_at = uuid_v7_time(event_id) + interval '5 seconds' WHERE aggregate_id = 'skewed-1'
      RETURNING occurred_at AS at, occurred_at - interval '1 second' AS "from", occurred_at + interval '1 second' AS "to"`
    assert.strictEqual((yield* replay({ topic, from: event!.from, to: event!.to }, 2)).length, 1)
    assert.strictEqual((yield* replay({ topic, to: event!.from }, 2)).length, 0)
    assert.strictEqual((yield* replay({ topic, from: event!.to }, 2)).length, 0)
    // An id ahead of its event: a process that learned of the database's clock before it was set back.
    yield* sql`UPDATE event_log SET occurred_at = uuid_v7_time(event_id) - interval '5 seconds' WHERE aggregate_id = 'skewed-1'`
    const earlier = (date: Date) => new Date(date.getTime() - 10_000)
    assert.strictEqual((yield* replay({ topic, from: earlier(event!.from), to: earlier(event!.to) }, 2)).length, 1)
  }).pipe(Effect.provide(world))
)

it.live("a page ends where its events get too large to hold many of them", () =>
  Effect.gen(function* () {
    for (let n = 0; n < 12; n++) yield* Transaction.run(Counters.create(`large-${10 + n}`, "x".repeat(800_000)))
    yield* publishAll
    const history = yield* History
    const { events } = yield* history.replay({ topic: Counters.topic })
    assert.strictEqual(events.length, 5)
    assert.strictEqual((yield* replay({ topic: Counters.topic }, 1_000)).length, 12)
  }).pipe(Effect.provide(world))
)
