/** The statements of small turns find and mark what the queue's own would, or leave it to them. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { allLanes, laneCount } from "../../../src/outbox/Lane.ts"
import {
  type Acknowledged,
  type Fetched,
  type LanePart,
  Queue,
  type QueuedEvent,
  QueueSettings
} from "../../../src/outbox/Queue.ts"
import * as SmallTurns from "../../../src/postgres/fast/SmallTurns.ts"
import { nodesOf } from "../../support/Planned.ts"
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

/** A queue behind the statements of small turns, how often its own were run, and the lanes of its last fetch. */
const make = Effect.gen(function* () {
  const queue = yield* Queue
  const asked = {
    laneByLane: 0,
    marks: 0,
    marked: [] as Array<ReadonlyArray<number>>,
    lanes: [] as ReadonlyArray<number>
  }
  const counted = Layer.succeed(Queue, {
    ...queue,
    fetch: (parts) => {
      asked.laneByLane++
      asked.lanes = parts.map(({ lane }) => lane)
      return queue.fetch(parts)
    },
    mark: (runs) => {
      asked.marks++
      asked.marked.push(runs.map(({ lane }) => lane))
      return queue.mark(runs)
    }
  })
  const context = yield* Layer.build(Layer.fresh(Layer.provide(SmallTurns.layer, counted)))
  return { queue, small: Context.get(context, Queue), asked }
})

/** The answer, without what a fetch tells itself. */
const told = (all: ReadonlyArray<Fetched>) =>
  all.map(({ events, isCut, lane }) => ({
    lane,
    isCut,
    events: events.map(({ held, seq }) => ({ held, seq }))
  }))

/** Acknowledges the events that `isSent` names: runs of a lane in one partition, at offsets that begin with its number. */
const runsOf = (fetched: ReadonlyArray<Fetched>, isSent: (index: number) => boolean): ReadonlyArray<Acknowledged> => {
  let index = 0
  return fetched.flatMap(({ events, lane }) => {
    const sent = events.filter(() => isSent(index++))
    return sent.length === 0
      ? []
      : [
          {
            lane,
            topic: "orders",
            events: sent,
            receipt: { partition: lane % 8, baseOffset: BigInt(lane * 1_000) }
          }
        ]
  })
}

const every = Array.from({ length: laneCount }, (_, lane) => lane)

const unarchived = Layer.succeed(QueueSettings, { batchSize: 1_000, batchBytes: 900_000, archive: false })

/** One connection, so that a setting is one of all its statements. */
const oneConnection = Layer.unwrap(Effect.map(TestDatabase, ({ url }) => PgClient.layer({ url, maxConnections: 1 })))

layer(Queue.layer.pipe(Layer.provideMerge(oneConnection), Layer.provide(TestDatabase.layer)))("small turns", (it) => {
  it.effect.prop(
    "whatever waits, a fetch returns what the queue's own returns",
    [Case],
    ([{ below, events, held, isWhole, lanes, part }]) =>
      Effect.gen(function* () {
        yield* fill(events, held)
        const parts = yield* partsOf(isWhole ? every : [...new Set(lanes)], part, below)
        const { queue, small } = yield* make
        if (parts.length === 0) return
        assert.deepStrictEqual(told(yield* small.fetch(parts)), told(yield* queue.fetch(parts)))
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 100 } }
  )

  it.effect("what waits for its mark is not read again, as far as there are not too many", () =>
    Effect.gen(function* () {
      yield* fill(Array.from({ length: 200 }, (_, index) => ({ lane: index % 20, bytes: 100 })))
      const { asked, queue, small } = yield* make
      for (const lanes of [every, [0, 1, 2, 3, 4, 5]]) {
        const parts = yield* partsOf(lanes)
        const numbers = (yield* queue.fetch(parts)).flatMap(({ events }) => events.map(({ seq }) => seq))
        const waiting = numbers.filter((_, index) => index % 4 < 3)
        const found = (yield* small.fetch(parts, new Set(waiting))).flatMap(({ events }) => events)
        // The rest of them comes once more, and the dispatcher leaves it out.
        const passedOver = new Set(waiting.slice(0, 128))
        assert.deepStrictEqual(
          found.map(({ seq }) => seq),
          numbers.filter((seq) => !passedOver.has(seq))
        )
      }
      assert.strictEqual(asked.laneByLane, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("a lane whose mark lies behind those of the others loses no event", () =>
    Effect.gen(function* () {
      yield* fill([...every, ...every.slice(0, 60)].map((lane) => ({ lane, bytes: 100 })).slice(62))
      const { asked, small } = yield* make
      const found = yield* small.fetch(yield* partsOf(every.toReversed()))
      assert.strictEqual(
        found.reduce((sum, { events }) => sum + events.length, 0),
        62
      )
      assert.strictEqual(asked.laneByLane, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("a lane whose mark lies far behind is fetched by itself, and marked by itself", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill([1, 2, 5].map((lane) => ({ lane, bytes: 100 })))
      yield* sql`SELECT setval('outbox_events_seq_seq', last_value + 6000) FROM outbox_events_seq_seq`
      yield* sql`UPDATE outbox_events SET seq = DEFAULT WHERE lane = 5`
      const { asked, small } = yield* make
      const parts = yield* partsOf(every)
      const found = yield* small.fetch(parts)
      assert.deepStrictEqual(asked.lanes, [1, 2])
      assert.deepStrictEqual(
        found.map(({ lane }) => Number(lane)),
        every
      )
      assert.deepStrictEqual(
        found.flatMap(({ events }) => events.map(({ lane }) => Number(lane))),
        [1, 2, 5]
      )
      const [first, second] = runsOf(yield* small.fetch(parts), () => true)
      const [event] = second!.events
      const late = { ...second!, events: [{ ...event!, seq: event!.seq + 6_000n }] }
      yield* small.mark([first!, late])
      assert.strictEqual(asked.marks, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("a lane with runs of two topics is marked by the queue, which locks its rows in another order", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill([1, 1, 2].map((lane) => ({ lane, bytes: 100 })))
      const { asked, queue, small } = yield* make
      const [run, other] = runsOf(yield* queue.fetch(yield* partsOf(every)), () => true)
      yield* small.mark([
        { ...run!, events: run!.events.slice(1), topic: "a" },
        { ...run!, events: run!.events.slice(0, 1), topic: "b" },
        other!
      ])
      assert.deepStrictEqual(asked.marked, [[1, 1]])
      assert.lengthOf(yield* sql`SELECT FROM outbox_events`, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("several batches of a lane are marked together, each where it lies in the topic", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`DELETE FROM event_log`
      yield* fill([1, 1, 1].map((lane) => ({ lane, bytes: 100 })))
      const { asked, queue, small } = yield* make
      const [run] = runsOf(yield* queue.fetch(yield* partsOf(every)), () => true)
      const batch = (from: number, to: number, baseOffset: bigint): Acknowledged => ({
        ...run!,
        events: run!.events.slice(from, to),
        receipt: { ...run!.receipt, baseOffset }
      })
      yield* small.mark([batch(0, 1, 500n), batch(1, 3, 700n)])
      assert.deepStrictEqual(asked.marked, [])
      const rows = yield* sql<{
        readonly offset: bigint
      }>`SELECT broker_offset AS offset FROM event_log ORDER BY aggregate_version`
      assert.deepStrictEqual(
        rows.map(({ offset }) => offset),
        [500n, 700n, 701n]
      )
    }).pipe(Effect.scoped)
  )

  it.effect("large records are left to the queue's fetch", () =>
    Effect.gen(function* () {
      yield* fill([{ lane: 1, bytes: 16_384 }])
      const { asked, small } = yield* make
      const [, fetched] = yield* small.fetch(yield* partsOf(every))
      assert.lengthOf(fetched!.events, 1)
      assert.strictEqual(asked.laneByLane, 0)
      yield* fill([{ lane: 1, bytes: 16_385 }])
      const [, found] = yield* small.fetch(yield* partsOf(every))
      assert.strictEqual(found!.events[0]!.data, "{}")
      assert.strictEqual(asked.laneByLane, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("without an archive the events are deleted, and nothing is kept", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`DELETE FROM event_log`
      yield* fill([1, 2, 2].map((lane) => ({ lane, bytes: 100 })))
      const { asked, queue, small } = yield* make
      yield* small.mark(runsOf(yield* queue.fetch(yield* partsOf(every)), (index) => index > 0))
      assert.deepStrictEqual(yield* sql`SELECT lane::int4 AS lane FROM outbox_events`, [{ lane: 1 }])
      assert.lengthOf(yield* sql`SELECT FROM event_log`, 0)
      assert.strictEqual(asked.marks, 0)
    }).pipe(Effect.scoped, Effect.provide(unarchived))
  )

  it.effect("a number of another lane is left alone", () =>
    Effect.gen(function* () {
      yield* fill([1, 2].map((lane) => ({ lane, bytes: 100 })))
      const { queue, small } = yield* make
      const [first, second] = runsOf(yield* queue.fetch(yield* partsOf(every)), () => true)
      yield* small.mark([
        { ...first!, events: second!.events },
        { ...second!, events: first!.events }
      ])
      assert.lengthOf(
        (yield* queue.fetch(yield* partsOf(every))).flatMap(({ events }) => events),
        2
      )
    }).pipe(Effect.scoped)
  )

  it.effect("after a scan that fails the next fetches go lane by lane", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { asked, small } = yield* make
      const parts = yield* partsOf(every)
      yield* sql`ALTER TABLE outbox_events RENAME TO elsewhere`
      assert.isTrue(Exit.isFailure(yield* Effect.exit(small.fetch(parts))))
      yield* sql`ALTER TABLE elsewhere RENAME TO outbox_events`
      yield* small.fetch(parts)
      assert.strictEqual(asked.laneByLane, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("marks from before a restart of the server are void", () =>
    Effect.gen(function* () {
      yield* fill([{ lane: 1, bytes: 100 }])
      const { asked, small } = yield* make
      const parts = yield* partsOf(every)
      const found = yield* small.fetch(
        parts.map((part) => ({ ...part, from: { seq: part.from!.seq + 1_000n, server: "the one before" } }))
      )
      assert.lengthOf(found[1]!.events, 1)
      assert.strictEqual(asked.laneByLane, 0)
    }).pipe(Effect.scoped)
  )

  it.effect("more of a lane than its part is left to the queue's fetch", () =>
    Effect.gen(function* () {
      const { asked, small } = yield* make
      for (const part of [
        { events: 2, bytes: 900_000 },
        { events: 250, bytes: 299 }
      ]) {
        yield* fill([1, 1, 1].map((lane) => ({ lane, bytes: 100 })))
        asked.laneByLane = 0
        const [, found] = yield* small.fetch(yield* partsOf(every, part))
        assert.lengthOf(found!.events, 2)
        assert.isTrue(found!.isCut)
        assert.strictEqual(asked.laneByLane, 1)
        // The rest after a scan in vain.
        for (let count = 0; count < 20; count++) yield* small.fetch([])
      }
    }).pipe(Effect.scoped)
  )

  it.effect("after a scan that did not come to the end, the next twenty fetches go lane by lane", () =>
    Effect.gen(function* () {
      const { asked, small } = yield* make
      yield* fill([...every, ...every, 0].map((lane) => ({ lane, bytes: 100 })))
      const parts = yield* partsOf(every)
      yield* small.fetch(parts)
      assert.strictEqual(asked.laneByLane, 1)
      yield* fill([])
      for (let count = 0; count < 25; count++) yield* small.fetch(parts)
      assert.strictEqual(asked.laneByLane, 21)
    }).pipe(Effect.scoped)
  )

  it.effect("lanes without a mark, and lanes that leave something out, are fetched lane by lane", () =>
    Effect.gen(function* () {
      const { asked, small } = yield* make
      yield* fill([{ lane: 1, bytes: 100 }])
      const parts = yield* partsOf(every)
      const [first, ...others] = parts as [LanePart, ...Array<LanePart>]
      yield* small.fetch([{ lane: first.lane, events: 1, bytes: 1 }, ...others])
      yield* small.fetch([{ ...first, withoutTopics: ["orders"] }, ...others])
      const [, found] = yield* small.fetch([
        ...parts.slice(0, 1),
        { ...parts[1]!, withoutAggregates: [{ aggregateType: "Order", aggregateId: "1" }] },
        ...parts.slice(2)
      ])
      assert.lengthOf(found!.events, 0)
      assert.strictEqual(asked.laneByLane, 3)
    }).pipe(Effect.scoped)
  )

  it.effect("few lanes, of which one is far behind, are fetched lane by lane together", () =>
    Effect.gen(function* () {
      const { asked, small } = yield* make
      yield* fill([{ lane: 1, bytes: 100 }])
      const parts = (yield* partsOf(every)).slice(0, 4)
      yield* small.fetch(parts)
      assert.strictEqual(asked.laneByLane, 0)
      const { seq, server } = parts[0]!.from!
      yield* small.fetch([{ ...parts[0]!, from: { seq: seq + 501n, server } }, ...parts.slice(1)])
      assert.strictEqual(asked.laneByLane, 1)
      assert.lengthOf(asked.lanes, 4)
    }).pipe(Effect.scoped)
  )

  it.effect.prop(
    "whatever is acknowledged, a mark deletes it alone, and archives each event at its own partition and offset",
    [Case, Schema.Array(Schema.Boolean).check(Schema.isMaxLength(80))],
    ([{ events }, sent]) =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* fill(events)
        yield* sql`DELETE FROM event_log`
        const { queue, small } = yield* make
        const runs = runsOf(yield* queue.fetch(yield* partsOf(every)), (index) => sent[index] === true)
        yield* small.mark(runs.toReversed())
        const expected = runs.flatMap(({ events, receipt }) =>
          events.map(({ eventId }, index) => ({
            id: eventId,
            partition: receipt.partition,
            offset: Number(receipt.baseOffset) + index
          }))
        )
        const archived = yield* sql`
          SELECT event_id::text AS id, broker_partition AS partition, broker_offset::int4 AS offset
          FROM event_log ORDER BY broker_offset`
        assert.deepStrictEqual(archived, expected)
        const left = yield* sql<{ readonly id: string }>`SELECT event_id::text AS id FROM outbox_events`
        assert.lengthOf(left, events.length - expected.length)
        assert.isTrue(left.every(({ id }) => expected.every((one) => one.id !== id)))
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 100 } }
  )

  it.effect("either mark archives each event with the time of its acknowledgement", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { queue, small } = yield* make
      for (const { mark } of [queue, small]) {
        yield* fill(every.slice(0, 10).map((lane) => ({ lane, bytes: 100 })))
        yield* sql`DELETE FROM event_log`
        const runs = runsOf(yield* queue.fetch(yield* partsOf(every)), () => true)
        yield* mark(runs.map((run) => ({ ...run, receipt: { ...run.receipt, ageMillis: () => run.lane * 60_000 } })))
        const archived = yield* sql`
          SELECT (broker_offset / 1000)::int4 AS lane, round(extract(epoch FROM clock_now() - published_at) / 60)::int4 AS minutes
          FROM event_log ORDER BY 1`
        assert.deepStrictEqual(
          archived,
          every.slice(0, 10).map((lane) => ({ lane, minutes: lane }))
        )
      }
    }).pipe(Effect.scoped)
  )

  it.effect("an event whose id the archive has leaves the queue, and the others are archived", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`DELETE FROM event_log`
      yield* fill([1, 2].map((lane) => ({ lane, bytes: 100 })))
      const { asked, queue, small } = yield* make
      const runs = runsOf(yield* queue.fetch(yield* partsOf(every)), () => true)
      yield* small.mark(runs.slice(0, 1))
      yield* sql`UPDATE event_log SET topic = 'the first'`
      const [{ eventId }] = runs[0]!.events as [QueuedEvent]
      yield* fill([1, 2].map((lane) => ({ lane, bytes: 100 })))
      yield* sql`UPDATE outbox_events SET event_id = ${eventId}::uuid WHERE lane = 1`
      yield* small.mark(runsOf(yield* queue.fetch(yield* partsOf(every)), () => true))
      assert.strictEqual(asked.marks, 1)
      assert.lengthOf(yield* sql`SELECT FROM outbox_events`, 0)
      assert.deepStrictEqual(yield* sql`SELECT topic FROM event_log ORDER BY topic`, [
        { topic: "orders" },
        { topic: "the first" }
      ])
    }).pipe(Effect.scoped)
  )

  it.effect("a large mark, and one of no event, are left to the queue", () =>
    Effect.gen(function* () {
      yield* fill([...every, ...every, 0].map((lane) => ({ lane, bytes: 100 })))
      const { asked, queue, small } = yield* make
      const runs = runsOf(yield* queue.fetch(yield* partsOf(every)), () => true)
      yield* small.mark([])
      yield* small.mark(runs)
      assert.strictEqual(asked.marks, 2)
    }).pipe(Effect.scoped)
  )

  it.effect("both read ranges of one index, however small the queue was when it was analyzed", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill([])
      yield* sql`VACUUM ANALYZE outbox_events`
      yield* fill([{ lane: 1, bytes: 100 }])
      const { queue, small } = yield* make
      // As on a dispatcher's connections.
      yield* sql`SET enable_seqscan = off`
      yield* sql`SET enable_bitmapscan = off`
      const parts = yield* partsOf(every)
      const scan = yield* nodesOf(small.fetch(parts))
      const scanOfFew = yield* nodesOf(small.fetch(parts.slice(0, 4)))
      const runs = runsOf(yield* queue.fetch(parts), () => true)
      const mark = yield* nodesOf(small.mark(runs))
      const large = yield* nodesOf(queue.mark(runs))
      assert.isFalse([...scan, ...scanOfFew].some((node) => node["Node Type"].includes("Sort")))
      for (const nodes of [scan, scanOfFew, mark, large]) {
        const reads = nodes.filter((node) => node["Index Name"] === "outbox_events_pkey")
        assert.isNotEmpty(reads)
        for (const read of reads) assert.match(read["Index Cond"] ?? "", /lane.*seq >= /)
      }
    }).pipe(Effect.scoped)
  )
})
