/** One scan for many lanes finds what the queue's fetch finds, or leaves it to that one. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { allLanes, laneCount } from "../../../src/outbox/Lane.ts"
import { type Fetched, type LanePart, Queue } from "../../../src/outbox/Queue.ts"
import * as OneScan from "../../../src/postgres/fast/OneScan.ts"
import { planned } from "../../support/Planned.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const Case = Schema.Struct({
  events: Schema.Array(Schema.Struct({ lane: between(0, 63), bytes: between(1, 400) })).check(Schema.isMaxLength(80)),
  held: Schema.Array(between(0, 63)).check(Schema.isMaxLength(3)),
  lanes: Schema.Array(between(0, 63)).check(Schema.isMaxLength(64)),
  isWhole: Schema.Boolean,
  part: Schema.Struct({ events: between(1, 20), bytes: between(100, 2_000) }),
  /** How far below its lane's first event a low-water mark lies. */
  below: between(0, 100)
})

/** Puts these events into the queue, each of an aggregate of its lane, and holds the aggregates of some lanes. */
const fill = Effect.fnUntraced(function* (
  events: ReadonlyArray<{ readonly lane: number; readonly bytes: number }>,
  held: ReadonlyArray<number> = []
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DELETE FROM outbox_events`
  yield* sql`DELETE FROM outbox_holds`
  if (events.length > 0)
    yield* sql`
      INSERT INTO outbox_events (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                 occurred_at, trace_id, span_id, lane, record_bytes, data)
      SELECT gen_random_uuid(), 'orders', 'Happened', 1, 'Order', lane::text, position, clock_now(), repeat('a', 32), repeat('b', 16),
             lane, bytes, '{}'
      FROM unnest(${events.map(({ lane }) => lane)}::int2[], ${events.map(({ bytes }) => bytes)}::int4[]) WITH ORDINALITY AS event(lane, bytes, position)
      ORDER BY position`
  for (const lane of new Set(held))
    yield* sql`
      INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, held_at)
      VALUES ('Order', ${String(lane)}, ${lane}::int2, 'orders', gen_random_uuid(), 0, 1, clock_now())`
})

/** These lanes, from their marks on. */
const partsOf = Effect.fnUntraced(function* (
  lanes: ReadonlyArray<number>,
  part: Pick<LanePart, "events" | "bytes"> = { events: 250, bytes: 225_000 },
  below = 0
) {
  const sql = yield* SqlClient.SqlClient
  const [at] = yield* sql<{ readonly server: string; readonly last: bigint }>`
    SELECT pg_postmaster_start_time()::text AS server, last_value AS last FROM outbox_events_seq_seq`
  const firsts = new Map(
    (yield* sql<{ readonly lane: number; readonly first: bigint }>`
      SELECT lane, min(seq) AS first FROM outbox_events GROUP BY lane`).map(({ first, lane }) => [lane, first])
  )
  return lanes.map((lane): LanePart => ({
    ...part,
    lane: allLanes[lane]!,
    from: { seq: (firsts.get(lane) ?? at!.last + 1n) - BigInt(below), server: at!.server }
  }))
})

/** A queue behind one scan, and how often it was asked lane by lane. */
const make = Effect.gen(function* () {
  const queue = yield* Queue
  const asked = { laneByLane: 0 }
  const counted = Layer.succeed(Queue, {
    ...queue,
    fetch: (parts) => {
      asked.laneByLane++
      return queue.fetch(parts)
    }
  })
  const context = yield* Layer.build(Layer.fresh(Layer.provide(OneScan.layer, counted)))
  return { queue, scanned: Context.get(context, Queue), asked }
})

/** The answer, without what a fetch tells itself. */
const told = (all: ReadonlyArray<Fetched>) =>
  all.map(({ events, isCut, lane }) => ({
    lane,
    isCut,
    events: events.map(({ ctid, held, seq }) => ({ ctid, held, seq }))
  }))

const every = Array.from({ length: laneCount }, (_, lane) => lane)

/** One connection, so that a setting is one of all its statements. */
const oneConnection = Layer.unwrap(Effect.map(TestDatabase, ({ url }) => PgClient.layer({ url, maxConnections: 1 })))

layer(Queue.layer.pipe(Layer.provideMerge(oneConnection), Layer.provide(TestDatabase.layer)))("one scan", (it) => {
  it.effect.prop(
    "whatever waits, a fetch returns what the queue's own returns",
    [Case],
    ([{ below, events, held, isWhole, lanes, part }]) =>
      Effect.gen(function* () {
        yield* fill(events, held)
        const parts = yield* partsOf(isWhole ? every : [...new Set(lanes)], part, below)
        const { queue, scanned } = yield* make
        if (parts.length === 0) return
        assert.deepStrictEqual(told(yield* scanned.fetch(parts)), told(yield* queue.fetch(parts)))
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 100 } }
  )

  it.effect("a lane whose mark lies behind those of the others loses no event", () =>
    Effect.gen(function* () {
      yield* fill([...every, ...every.slice(0, 60)].map((lane) => ({ lane, bytes: 100 })).slice(62))
      const { asked, scanned } = yield* make
      const found = yield* scanned.fetch(yield* partsOf(every.toReversed()))
      assert.strictEqual(
        found.reduce((sum, { events }) => sum + events.length, 0),
        62
      )
      assert.strictEqual(asked.laneByLane, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("marks from before a restart of the server are void", () =>
    Effect.gen(function* () {
      yield* fill([{ lane: 1, bytes: 100 }])
      const { asked, scanned } = yield* make
      const parts = yield* partsOf(every)
      const found = yield* scanned.fetch(
        parts.map((part) => ({ ...part, from: { seq: part.from!.seq + 1_000n, server: "the one before" } }))
      )
      assert.lengthOf(found[1]!.events, 1)
      assert.strictEqual(asked.laneByLane, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("more of a lane than its part is left to the queue's fetch", () =>
    Effect.gen(function* () {
      const { asked, scanned } = yield* make
      for (const part of [
        { events: 2, bytes: 900_000 },
        { events: 250, bytes: 299 }
      ]) {
        yield* fill([1, 1, 1].map((lane) => ({ lane, bytes: 100 })))
        asked.laneByLane = 0
        const [, found] = yield* scanned.fetch(yield* partsOf(every, part))
        assert.lengthOf(found!.events, 2)
        assert.isTrue(found!.isCut)
        assert.strictEqual(asked.laneByLane, 1)
        // The rest after a scan in vain.
        for (let count = 0; count < 20; count++) yield* scanned.fetch([])
      }
    }).pipe(Effect.scoped)
  )

  it.effect("after a scan that did not come to the end, the next twenty fetches go lane by lane", () =>
    Effect.gen(function* () {
      const { asked, scanned } = yield* make
      yield* fill([...every, 0].map((lane) => ({ lane, bytes: 100 })))
      const parts = yield* partsOf(every)
      yield* scanned.fetch(parts)
      assert.strictEqual(asked.laneByLane, 1)
      yield* fill([])
      for (let count = 0; count < 25; count++) yield* scanned.fetch(parts)
      assert.strictEqual(asked.laneByLane, 21)
    }).pipe(Effect.scoped)
  )

  it.effect("few lanes, lanes without a mark, and lanes that leave something out are fetched lane by lane", () =>
    Effect.gen(function* () {
      const { asked, scanned } = yield* make
      yield* fill([{ lane: 1, bytes: 100 }])
      const parts = yield* partsOf(every)
      const [first, ...others] = parts as [LanePart, ...Array<LanePart>]
      yield* scanned.fetch(parts.slice(0, 7))
      yield* scanned.fetch([{ lane: first.lane, events: 1, bytes: 1 }, ...others])
      yield* scanned.fetch([{ ...first, withoutTopics: ["orders"] }, ...others])
      const [, found] = yield* scanned.fetch([
        ...parts.slice(0, 1),
        { ...parts[1]!, withoutAggregates: [{ aggregateType: "Order", aggregateId: "1" }] },
        ...parts.slice(2)
      ])
      assert.lengthOf(found!.events, 0)
      assert.strictEqual(asked.laneByLane, 4)
    }).pipe(Effect.scoped)
  )

  it.effect("the scan reads the index of lanes in its order, from the marks on", () =>
    Effect.gen(function* () {
      yield* fill([{ lane: 1, bytes: 100 }])
      const { scanned } = yield* make
      const sql = yield* SqlClient.SqlClient
      // As on a dispatcher's connections: the queue is a small table here.
      yield* sql`SET enable_seqscan = off`
      const plan = yield* planned(scanned.fetch(yield* partsOf(every)))
      assert.include(plan.indexes, "outbox_events_pkey")
      assert.deepStrictEqual(plan.scans, [])
    }).pipe(Effect.scoped)
  )
})
