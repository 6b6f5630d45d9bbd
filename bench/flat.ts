/**
 * `bench flat`: the cost of the dispatcher's statements when the system is not empty, as ratios to an empty one measured just before.
 *
 * - archived: millions of published events lie in the archive.
 * - queued: an outage's backlog lies in the queue.
 * - reader: a REPEATABLE READ transaction stays open while ten minutes' events (at 500/s) are written and published, so that vacuum can't
 *   remove their dead rows.
 *
 * Each time every lane holds the same events, and three statements are timed: the poll of all lanes, a fetch of one event and a fetch of a
 * full batch.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Lane, laneCount } from "../src/outbox/Lane.ts"
import { Queue } from "../src/outbox/Queue.ts"
import { Environment, Side } from "./Environment.ts"
import { quantile, table } from "./Figures.ts"
import * as Service from "./Service.ts"
import { LowWaterMarks } from "../src/postgres/fast/LowWaterMarks.ts"
import { fill, fullBatch, reset, topic } from "./Workload.ts"

const lanes = Array.from({ length: laneCount }, (_, lane) => Lane.make(lane))

/** Repetitions of each statement: their median is stable. */
const looks = 5

const millisOf = <E, R>(work: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const started = performance.now()
    yield* work
    return performance.now() - started
  })

/** A full batch of the lane. */
const batchOf = (lane: Lane) => ({ lane, events: fullBatch, bytes: Number.MAX_SAFE_INTEGER })

/** Times in milliseconds, the median over all lanes. */
const look = Effect.gen(function* () {
  const queue = yield* Queue
  const perLane = (work: (lane: Lane) => Effect.Effect<unknown>) =>
    Effect.map(
      Effect.forEach(
        Array.from({ length: looks }).flatMap(() => lanes),
        (lane) => millisOf(work(lane))
      ),
      (millis) => quantile(millis, 0.5)
    )
  return {
    poll: yield* perLane(() => queue.ready(lanes.map((lane) => ({ lane })))),
    one: yield* perLane((lane) => queue.fetch([{ lane, events: 1, bytes: Number.MAX_SAFE_INTEGER }])),
    batch: yield* perLane((lane) => queue.fetch([batchOf(lane)]))
  }
})

type Look = Effect.Success<typeof look>

/** A full batch in every lane. */
const someEvents = fill(laneCount * fullBatch * 1.3)

const emptySystem = Effect.gen(function* () {
  yield* reset
  yield* someEvents
  yield* settle
  yield* look
  return yield* look
})

/** Runs the vacuum that autovacuum would run after a while. */
const settle = Effect.gen(function* () {
  const sql = yield* Side
  yield* sql`VACUUM ANALYZE outbox_events`
  yield* sql`CHECKPOINT`
})

/** Empties the queue as publishing does. */
const publishAll = Effect.gen(function* () {
  const queue = yield* Queue
  yield* Effect.forEach(
    lanes,
    Effect.fnUntraced(function* (lane) {
      while (true) {
        const [fetched] = yield* queue.fetch([batchOf(lane)])
        const events = fetched?.events ?? []
        if (events.length === 0) return
        yield* queue.mark([{ lane, topic, events, receipt: { partition: 0, baseOffset: 0n } }])
      }
    }),
    { concurrency: 8, discard: true }
  )
})

const archived = (count: number) =>
  Effect.gen(function* () {
    const sql = yield* Side
    const empty = yield* emptySystem
    yield* sql`
      INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
                             trace_id, span_id, data, broker_partition, broker_offset, published_at)
      SELECT overlay(gen_random_uuid()::text PLACING substring(uuid_v7_floor(clock_now()::date)::text FOR 13) FROM 1 FOR 13)::uuid, e.topic,
             e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id, number, e.occurred_at, e.trace_id, e.span_id, e.data,
             0, number, e.occurred_at
      FROM (SELECT * FROM outbox_events LIMIT 1000) AS e, generate_series(1, ${Math.ceil(count / 1_000)}::int4) AS number`
    yield* settle
    return [empty, yield* look] as const
  })

const queued = (count: number) =>
  Effect.gen(function* () {
    const empty = yield* emptySystem
    yield* fill(count)
    yield* settle
    return [empty, yield* look] as const
  })

const reader = (count: number) =>
  Effect.gen(function* () {
    const empty = yield* emptySystem
    yield* reset
    const { databaseUrl } = yield* Environment
    const old = yield* Layer.build(PgClient.layer({ url: databaseUrl, maxConnections: 1 }))
    const sql = Context.get(old, SqlClient.SqlClient)
    const marks = yield* LowWaterMarks
    const underReader = Effect.gen(function* () {
      // In ten parts: autovacuum runs between them, and can remove no row.
      for (let part = 0; part < 10; part++) {
        yield* fill(count / 10)
        yield* publishAll
        // As the dispatcher does each second: the first call notes the numbers, the second one raises the marks once all writers have
        // ended.
        yield* marks.raise(lanes)
        yield* marks.raise(lanes)
      }
      yield* someEvents
      yield* settle
      return yield* look
    })
    const seen = yield* sql.withTransaction(
      sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`.pipe(
        Effect.andThen(sql`SELECT count(*) FROM outbox_events`),
        Effect.andThen(underReader)
      )
    )
    return [empty, seen] as const
  }).pipe(Effect.scoped)

/** Runs the three comparisons. */
export const flat = Effect.fnUntraced(
  function* (options: { readonly archived: number; readonly queued: number; readonly readerEvents: number }) {
    const compare = (name: string, [empty, full]: readonly [Look, Look]) => ({
      name,
      emptyMillis: empty,
      millis: full,
      ratio: { poll: full.poll / empty.poll, one: full.one / empty.one, batch: full.batch / empty.batch }
    })
    return [
      compare(`${options.readerEvents} published under an old reader`, yield* reader(options.readerEvents)),
      compare(`${options.queued} queued`, yield* queued(options.queued)),
      compare(`${options.archived} archived`, yield* archived(options.archived))
    ]
  },
  Effect.provide(Service.queue({ archive: true }))
)

const cell = (millis: number, ratio: number) => `${millis.toFixed(2)} (${ratio.toFixed(2)}×)`

/** The result for a reader. */
export const print = (rows: Effect.Success<ReturnType<typeof flat>>): string =>
  [
    "p50 in ms, and times the same in an empty system just before",
    "",
    table(
      ["", "poll of 64 lanes", "fetch of one", "fetch of a batch"],
      rows.map(({ millis, name, ratio }) => [
        name,
        cell(millis.poll, ratio.poll),
        cell(millis.one, ratio.one),
        cell(millis.batch, ratio.batch)
      ])
    )
  ].join("\n")
