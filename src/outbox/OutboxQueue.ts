/**
 * The queue's two statements: fetch what a lane has to send, and mark what the broker acknowledged.
 *
 * Why `FOR UPDATE SKIP LOCKED` is not here: it hands different rows of one aggregate to two dispatchers, and the second may
 * publish first. A lane has one owner instead (Shares), and the fetch takes no locks at all.
 */
import { Context, Effect, Layer } from "effect"
import { SqlClient, SqlError, type Statement } from "effect/sql"
import type { StoredEvent } from "../brokers/Envelope.ts"
import * as LowWaterMarks from "../postgres/fast/LowWaterMarks.ts"
import { Lane, laneCount } from "./Lane.ts"

/** An event in the queue. `seq` is its place in the lane. */
export interface QueuedEvent extends StoredEvent {
  readonly seq: bigint
  /** Its aggregate waits behind an event that the broker refused (Holds): not to be sent from here. */
  readonly held?: boolean
  /** Whether the fetch saw another event of the lane behind this one: of the last one fetched, that the bounds cut there. */
  readonly followed?: boolean
}

/** Where a batch was stored: its first event at `baseOffset`, the others behind it. */
export interface Receipt {
  readonly partition: number
  readonly baseOffset: bigint
}

/** An aggregate, as rows name it. */
export interface Aggregate {
  readonly aggregateType: string
  readonly aggregateId: string
}

/** Bounds of a fetch, and whether published events are kept. */
export const QueueSettings = Context.Reference<{
  readonly batchSize: number
  readonly batchBytes: number
  readonly archive: boolean
}>("paid-once/outbox/QueueSettings", {
  defaultValue: () => ({ batchSize: 1_000, batchBytes: 900_000, archive: true })
})

/** See {@link OutboxQueue}. */
export interface OutboxQueueService {
  /** Those of `lanes` that have events of other topics than `pausedTopics`. */
  readonly ready: (
    lanes: ReadonlyArray<Lane>,
    pausedTopics: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<Lane>>
  /**
   * The lane's next events in order, but for paused topics: at most `batchSize`, and at most `batchBytes` of records, unless
   * the first one is larger by itself.
   *
   * Of each aggregate it returns a prefix of its unpublished events: an aggregate's events have rising `seq` in version order,
   * all of them are of one topic, and the bounds cut only at the end. Events of held aggregates are among them, marked `held`; those of
   * `without` are not.
   */
  readonly fetch: (
    lane: Lane,
    pausedTopics: ReadonlyArray<string>,
    without?: ReadonlyArray<Aggregate>
  ) => Effect.Effect<ReadonlyArray<QueuedEvent>>
  /** Those of `aggregates` whose versions do not rise in the lane's queue. Reads all of the lane. */
  readonly misordered: (lane: Lane, aggregates: ReadonlyArray<Aggregate>) => Effect.Effect<ReadonlyArray<Aggregate>>
  /**
   * Takes acknowledged events, in order of `seq`, out of the queue and archives them with their offsets, in one statement. Marking twice is
   * harmless: the second finds nothing. Of events that share an id the archive keeps the first, and a warning names the others.
   */
  readonly mark: (lane: Lane, events: ReadonlyArray<QueuedEvent>, receipt: Receipt) => Effect.Effect<void>
  /**
   * Looks where the events of `lanes` begin now, so that the statements above need not step over what was published before, nor those that leave
   * out what `topicsOf` says can't be sent in a lane over the backlog of that: to be called about once a second. Without it everything
   * holds, and is slow under a reader that keeps vacuum away, or in an outage.
   */
  readonly raiseFloors: (
    lanes: ReadonlyArray<Lane>,
    topicsOf?: (lane: Lane) => ReadonlyArray<string>
  ) => Effect.Effect<void>
  /** Forgets where the lanes begin: to be called for those that this process has lost. */
  readonly forgetFloors: (lanes: ReadonlyArray<Lane>) => Effect.Effect<void>
  /** How many events wait (counted up to {@link pendingCountLimit}) and since how many seconds the oldest does. */
  readonly pending: Effect.Effect<{ readonly count: number; readonly oldestSeconds: number }>
}

const isUniqueViolation = (error: SqlError.SqlError) => error.reason._tag === "UniqueViolation"

/** Of a published event that is not archived, because its id is: a fault of whoever wrote it, and consumers take it for a duplicate. */
export const warnOfSharedId = (eventId: string) =>
  Effect.logWarning("an event was published under an id that another one has, which the archive keeps").pipe(
    Effect.annotateLogs({ event_id: eventId })
  )

/** Counting stops here: that there are more is all that anyone needs to know, and counting a backlog costs what it least has. */
export const pendingCountLimit = 100_000

export class OutboxQueue extends Context.Service<OutboxQueue, OutboxQueueService>()("paid-once/outbox/OutboxQueue") {
  static readonly layer: Layer.Layer<OutboxQueue, never, SqlClient.SqlClient> = Layer.effect(
    OutboxQueue,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { archive, batchBytes, batchSize } = yield* QueueSettings
      const floors = LowWaterMarks.make(sql)

      /** A floor, where the server is still the one that it was found on. Evaluated once a statement. */
      const valid = (floor: Statement.Fragment) =>
        sql`CASE WHEN pg_postmaster_start_time()::text = ${floors.server()}::text THEN ${floor} ELSE 0 END`

      /** The aggregates, to be told whether a row is of one of them. */
      const among = (aggregates: ReadonlyArray<Aggregate>) => sql`
        (aggregate_type, aggregate_id) IN (SELECT * FROM unnest(
          ${aggregates.map(({ aggregateType }) => aggregateType)}::text[], ${aggregates.map(({ aggregateId }) => aggregateId)}::text[]))`

      /**
       * Makes the statement's commit asynchronous. What a mark loses when Postgres dies is sent again, a duplicate; waiting for the disk
       * would cost a lane some milliseconds, and the business transactions their turn at the disk.
       */
      const asynchronously = sql`SELECT clock_now() AS now, set_config('synchronous_commit', 'off', true) OFFSET 0`

      return OutboxQueue.of({
        ready: Effect.fnUntraced(function* (lanes, pausedTopics) {
          const rows = yield* sql<{ readonly lane: Lane }>`
            SELECT lane
            FROM unnest(${[...lanes]}::int2[], ${lanes.map((lane) => floors.of(lane, pausedTopics))}::int8[]) AS lane(lane, floor)
            CROSS JOIN LATERAL (
              -- The LIMIT keeps this a probe of the index for each lane, however the planner estimates a queue that is mostly empty.
              SELECT FROM outbox_events AS e
              WHERE e.lane = lane.lane AND e.seq >= ${valid(sql`lane.floor`)} AND e.topic <> ALL (${[...pausedTopics]}::text[])
              ORDER BY e.lane, e.seq LIMIT 1
            ) AS first`
          return rows.map((row) => row.lane)
        }, Effect.orDie),

        fetch: Effect.fnUntraced(function* (lane, pausedTopics, without = []) {
          return yield* sql<QueuedEvent>`
            SELECT seq, event_id::text AS "eventId", topic, event_type AS "eventType", schema_version AS "schemaVersion",
                   aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", aggregate_version AS "aggregateVersion",
                   to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   trace_id AS "traceId", span_id AS "spanId", data::text AS data, followed,
                   -- In the same snapshot as the rows. A hashed look into a table that is empty as a rule.
                   (aggregate_type, aggregate_id) IN (SELECT aggregate_type, aggregate_id FROM outbox_holds WHERE lane = ${lane}::int2) AS held
            FROM (
              SELECT *, row_number() OVER in_order AS position, sum(record_bytes) OVER in_order AS bytes_to_here,
                     lead(true, 1, false) OVER in_order AS followed
              FROM (
                SELECT * FROM outbox_events
                WHERE lane = ${lane}::int2 AND seq >= ${valid(sql`${floors.of(lane, pausedTopics)}::int8`)}
                  AND topic <> ALL (${[...pausedTopics]}::text[])
                  ${without.length === 0 ? sql`` : sql`AND NOT ${among(without)}`}
                -- One more than a batch: so the last one tells whether it is worth coming again at once.
                ORDER BY seq LIMIT ${batchSize + 1}
              ) AS next
              WINDOW in_order AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
            ) AS measured
            WHERE position <= ${batchSize} AND (bytes_to_here <= ${batchBytes} OR position = 1)
            ORDER BY seq`
        }, Effect.orDie),

        misordered: Effect.fnUntraced(function* (lane, aggregates) {
          return yield* sql<Aggregate>`
            SELECT DISTINCT aggregate_type AS "aggregateType", aggregate_id AS "aggregateId"
            FROM (
              SELECT aggregate_type, aggregate_id,
                     aggregate_version <= lag(aggregate_version) OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY seq) AS falls
              FROM outbox_events
              WHERE lane = ${lane}::int2 AND seq >= ${valid(sql`${floors.of(lane, [])}::int8`)} AND ${among(aggregates)}
            ) AS versions
            WHERE falls`
        }, Effect.orDie),

        raiseFloors: (lanes, topicsOf = () => []) => Effect.orDie(floors.raise(lanes, topicsOf)),
        forgetFloors: (lanes) => Effect.sync(() => floors.forget(lanes)),

        mark: Effect.fnUntraced(function* (lane, events, receipt) {
          floors.died()
          const seqs = events.map((event) => event.seq)
          if (!archive) {
            yield* sql`
              DELETE FROM outbox_events USING (${asynchronously}) AS asynchronous
              WHERE lane = ${lane}::int2 AND seq = ANY (${seqs}::int8[])`
            return
          }
          const published = sql`
            DELETE FROM outbox_events WHERE lane = ${lane}::int2 AND seq = ANY (${seqs}::int8[])
            RETURNING *`
          const archiving = sql`
            INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                   occurred_at, trace_id, span_id, data, broker_partition, broker_offset, published_at)
            SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                   occurred_at, trace_id, span_id, data,
                   -- The event's place in the batch, which is in order of seq: a binary search.
                   ${receipt.partition}::int4, ${receipt.baseOffset}::int8 + width_bucket(seq, ${seqs}::int8[]) - 1, asynchronous.now
            FROM (${asynchronously}) AS asynchronous, published`
          yield* sql`WITH published AS (${published}) ${archiving}`.pipe(
            Effect.catchIf(isUniqueViolation, () =>
              // An id that the archive has. It must not keep the batch in the queue, to be sent again for ever.
              Effect.flatMap(
                sql<{ readonly eventId: string }>`
                  WITH published AS (${published}), archived AS (
                    ${archiving} ORDER BY seq ON CONFLICT DO NOTHING RETURNING event_id
                  )
                  SELECT event_id::text AS "eventId" FROM published EXCEPT ALL SELECT event_id::text FROM archived`,
                Effect.forEach(({ eventId }) => warnOfSharedId(eventId), { discard: true })
              )
            )
          )
        }, Effect.orDie),

        pending: Effect.gen(function* () {
          const lanes = Array.from({ length: laneCount }, (_, lane) => Lane.make(lane))
          const [row] = yield* sql<{ readonly count: number; readonly seconds: number }>`
            WITH lane AS (SELECT * FROM unnest(${lanes}::int2[], ${lanes.map((lane) => floors.of(lane, []))}::int8[]) AS lane(lane, floor))
            SELECT (SELECT count(*) FROM (
                      SELECT FROM lane CROSS JOIN LATERAL (
                        SELECT FROM outbox_events AS e WHERE e.lane = lane.lane AND e.seq >= ${valid(sql`lane.floor`)}
                      ) AS waiting LIMIT ${pendingCountLimit}) AS sample)::float8 AS count,
                   coalesce(extract(epoch FROM clock_now() - min(first.occurred_at)), 0)::float8 AS seconds
            FROM lane
            CROSS JOIN LATERAL (
              SELECT occurred_at FROM outbox_events AS e WHERE e.lane = lane.lane AND e.seq >= ${valid(sql`lane.floor`)}
              ORDER BY e.lane, e.seq LIMIT 1
            ) AS first`
          return { count: row?.count ?? 0, oldestSeconds: Math.max(0, row?.seconds ?? 0) }
        }).pipe(Effect.orDie)
      })
    })
  )
}
