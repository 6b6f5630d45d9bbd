/**
 * The queue's statements: `ready`, `fetch` and `mark`, each one statement for any number of lanes.
 *
 * The fetch does not use `FOR UPDATE SKIP LOCKED`, which would give rows of one aggregate to two dispatchers, and the second one may
 * publish first. Instead each lane has one owner (platform/Ownership.ts), and the fetch takes no locks.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import type { StoredEvent } from "../brokers/Envelope.ts"
import { eventColumns, serverStartText } from "./EventRows.ts"
import { type Lane, allLanes } from "./Lane.ts"
import * as Rows from "../platform/Rows.ts"
import { markText } from "./MarkStatements.ts"
import { TurnConnection } from "./TurnConnection.ts"

/** An event in the queue. `seq` is its position in the lane. */
export interface QueuedEvent extends StoredEvent {
  readonly lane: Lane
  readonly seq: bigint
  /** The size of its record, which counts towards the bounds of a batch. */
  readonly recordBytes: number
  /** Its aggregate is held behind an event that the broker refused (holds/Holds.ts): it must not be sent from the queue. */
  readonly held?: boolean
  /** Its lane has a next event. */
  readonly followed?: boolean
}

/** The offsets of a batch: its first event is at `baseOffset`, and the others follow. */
export interface Receipt {
  readonly partition: number
  readonly baseOffset: bigint
  /** Since the broker acknowledged it, asked when it is marked; without it, none. Whole: Postgres would plan a fraction as another type. */
  readonly ageMillis?: () => number
}

/** An aggregate, as rows name it. */
export interface Aggregate {
  readonly aggregateType: string
  readonly aggregateId: string
}

/** A key that is unique to the aggregate: no text in Postgres contains a NUL. */
export const aggregateKey = ({ aggregateId, aggregateType }: Aggregate): string => `${aggregateType}\0${aggregateId}`

/** A lane, and what a statement leaves out of it. */
export interface LaneView {
  readonly lane: Lane
  readonly withoutTopics?: ReadonlyArray<string>
  readonly withoutAggregates?: ReadonlyArray<Aggregate>
  /** No event of this view has a smaller `seq`. Valid until the server restarts; `server` is its start time. */
  readonly from?: { readonly seq: bigint; readonly server: string }
}

/** How much of a lane is fetched: a maximum of events and of record bytes, but always at least one event. */
export interface LanePart extends LaneView {
  readonly events: number
  readonly bytes: number
}

/** The fetched events of a lane, per topic in order of `seq`. `isCut` says that the lane has, or may have, more events. */
export interface Fetched {
  readonly lane: Lane
  readonly events: ReadonlyArray<QueuedEvent>
  readonly isCut: boolean
}

/** Acknowledged events of one lane and topic, in order of `seq`, at consecutive offsets. */
export interface Acknowledged {
  readonly lane: Lane
  readonly topic: string
  readonly events: ReadonlyArray<QueuedEvent>
  readonly receipt: Receipt
}

/** Bounds of a batch, and whether published events are kept. */
export const QueueSettings = Context.Reference<{
  readonly batchSize: number
  readonly batchBytes: number
  readonly archive: boolean
}>("paid-once/outbox/QueueSettings", {
  defaultValue: () => ({ batchSize: 1_000, batchBytes: 900_000, archive: true })
})

/** See {@link Queue}. */
export interface QueueService {
  /** The lanes that have events. */
  readonly ready: (views: ReadonlyArray<LaneView>) => Effect.Effect<ReadonlyArray<Lane>>
  /**
   * The next events of each lane: one answer for each part, in the order of the parts.
   *
   * The events of each aggregate are a prefix of its unpublished events. Their `seq` rises in version order, all have one topic, and the bounds cut
   * only at the end. Events of held aggregates are included, marked `held`. Events with a `seq` in `without` may be left out.
   */
  readonly fetch: (
    parts: ReadonlyArray<LanePart>,
    without?: ReadonlySet<bigint>
  ) => Effect.Effect<ReadonlyArray<Fetched>>
  /** Deletes acknowledged events and archives them with their offsets, in one statement. A second mark is harmless. See {@link warnOfSharedId}. */
  readonly mark: (runs: ReadonlyArray<Acknowledged>) => Effect.Effect<void>
  /** How many events wait (counted up to {@link pendingCountLimit}), and the age of the oldest one in seconds. */
  readonly pending: (
    views: ReadonlyArray<LaneView>
  ) => Effect.Effect<{ readonly count: number; readonly oldestSeconds: number }>
}

/** The writer used an id twice: the archive keeps the first event. Consumers treat the second one as a duplicate. */
export const warnOfSharedId = (eventId: string) =>
  Effect.logWarning("an event was published under an id that another one has, which the archive keeps").pipe(
    Effect.annotateLogs({ event_id: eventId })
  )

/** Counting a large backlog takes database time that publishing it needs. */
export const pendingCountLimit = 100_000

/** The archive has the id of one of the events. */
export const isIdTaken = ({ reason }: SqlError.SqlError): boolean => reason._tag === "UniqueViolation"

const sharedIds = Rows.all(Schema.Struct({ eventId: Schema.String }))
const pendingRow = Rows.one(Schema.Struct({ count: Schema.Finite, seconds: Schema.Finite }))

export class Queue extends Context.Service<Queue, QueueService>()("paid-once/outbox/Queue") {
  static readonly layer: Layer.Layer<Queue, never, SqlClient.SqlClient> = Layer.effect(
    Queue,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { archive } = yield* QueueSettings

      /** The lanes of the views with the `seq` to begin at, as columns for `unnest`. */
      const lanesOf = (views: ReadonlyArray<LaneView>) =>
        sql`${views.map(({ lane }) => lane)}::int2[], ${views.map(({ from }) => from?.seq ?? 0n)}::int8[]`
      /** The lane's first `seq`, or 0 if the server has restarted since the mark was found. */
      const startIn = (views: ReadonlyArray<LaneView>) => {
        const server = views.find(({ from }) => from !== undefined)?.from?.server
        return server === undefined
          ? sql`0`
          : sql`CASE WHEN ${sql.literal(serverStartText)} = ${server}::text THEN lane.start ELSE 0 END`
      }
      /** The conditions for what the views leave out. A statement without any has its own plan. */
      const exclusions = (views: ReadonlyArray<LaneView>) => {
        const topics = views.flatMap(({ lane, withoutTopics = [] }) => withoutTopics.map((topic) => ({ lane, topic })))
        const aggregates = views.flatMap(({ withoutAggregates = [] }) => withoutAggregates)
        const withoutTopics = sql`
          AND (e.lane, e.topic) NOT IN (SELECT * FROM unnest(
            ${topics.map(({ lane }) => lane)}::int2[], ${topics.map(({ topic }) => topic)}::text[]))`
        // An aggregate lies in one lane.
        const withoutAggregates = sql`
          AND (e.aggregate_type, e.aggregate_id) NOT IN (SELECT * FROM unnest(
            ${aggregates.map(({ aggregateType }) => aggregateType)}::text[], ${aggregates.map(({ aggregateId }) => aggregateId)}::text[]))`
        return sql`${topics.length === 0 ? sql`` : withoutTopics}${aggregates.length === 0 ? sql`` : withoutAggregates}`
      }

      return Queue.of({
        ready: Effect.fnUntraced(function* (views) {
          // oxlint-disable-next-line paid-once/decoded-rows -- each poll of each dispatcher, and one column
          const rows = yield* sql<{ readonly lane: Lane }>`
            SELECT lane
            FROM unnest(${lanesOf(views)}) AS lane(lane, start)
            CROSS JOIN LATERAL (
              -- The LIMIT keeps this a probe of the index for each lane, however large the planner believes the queue to be.
              SELECT FROM outbox_events AS e
              WHERE e.lane = lane.lane AND e.seq >= ${startIn(views)} ${exclusions(views)}
              ORDER BY e.lane, e.seq LIMIT 1
            ) AS first`
          return rows.map((row) => row.lane)
        }, Effect.orDie),

        fetch: Effect.fnUntraced(function* (parts) {
          // oxlint-disable-next-line paid-once/decoded-rows -- every event passes here; a decoder would cost more than its fetch
          const rows = yield* ((yield* TurnConnection) ?? sql)<QueuedEvent>`
            SELECT ${sql.literal(eventColumns("e"))}, e.followed,
                   -- In the same snapshot as the rows. A hashed look into a table that is empty as a rule.
                   (e.aggregate_type, e.aggregate_id) IN (
                     SELECT aggregate_type, aggregate_id FROM outbox_holds WHERE lane = ANY (${parts.map(({ lane }) => lane)}::int2[])
                   ) AS held
            FROM unnest(${lanesOf(parts)}, ${parts.map(({ events }) => events)}::int4[], ${parts.map(({ bytes }) => bytes)}::int8[])
              AS lane(lane, start, events, bytes)
            CROSS JOIN LATERAL (
              SELECT * FROM (
                SELECT *, row_number() OVER in_order AS position, sum(record_bytes) OVER in_order AS bytes_to_here,
                       lead(true, 1, false) OVER in_order AS followed
                FROM (
                  SELECT * FROM outbox_events AS e
                  WHERE e.lane = lane.lane AND e.seq >= ${startIn(parts)} ${exclusions(parts)}
                  -- One more than the part: so its last event tells whether the lane is worth another fetch.
                  ORDER BY e.lane, e.seq LIMIT lane.events + 1
                ) AS next
                WINDOW in_order AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
              ) AS measured
              WHERE position <= lane.events AND (bytes_to_here <= lane.bytes OR position = 1)
            ) AS e`
          return byPart(parts, rows)
        }, Effect.orDie),

        mark: Effect.fnUntraced(function* (runs) {
          if (runs.length === 0) return
          const client = (yield* TurnConnection) ?? sql
          const all = padded(inLockOrder(runs))
          const values = all.flatMap(valuesOf)
          yield* client.unsafe(markText(all.length, archive ? "archived" : "deleted"), values).pipe(
            Effect.catchIf(isIdTaken, () =>
              // The archive has the id. The event must not keep its batch in the queue, where it would be sent for ever.
              Effect.flatMap(
                sharedIds(client.unsafe(markText(all.length, "named"), values)),
                Effect.forEach(({ eventId }) => warnOfSharedId(eventId), { discard: true })
              )
            )
          )
        }, Effect.orDie),

        pending: Effect.fnUntraced(function* (views) {
          const { count, seconds } = yield* pendingRow(sql`
            WITH lane AS (SELECT * FROM unnest(${lanesOf(views)}) AS lane(lane, start))
            SELECT (SELECT count(*) FROM (
                      SELECT FROM lane CROSS JOIN LATERAL (
                        SELECT FROM outbox_events AS e WHERE e.lane = lane.lane AND e.seq >= ${startIn(views)}
                      ) AS waiting LIMIT ${pendingCountLimit}) AS sample)::float8 AS count,
                   coalesce(extract(epoch FROM clock_now() - min(first.occurred_at)), 0)::float8 AS seconds
            FROM lane
            CROSS JOIN LATERAL (
              SELECT occurred_at FROM outbox_events AS e WHERE e.lane = lane.lane AND e.seq >= ${startIn(views)}
              ORDER BY e.lane, e.seq LIMIT 1
            ) AS first`)
          return { count, oldestSeconds: Math.max(0, seconds) }
        }, Effect.orDie)
      })
    })
  )
}

/** A view of every lane. */
export const wholeQueue: ReadonlyArray<LaneView> = allLanes.map((lane) => ({ lane }))

/**
 * The parameters of a run in a mark. No event has seq 0. The driver knows no type of an array without elements, so Postgres would plan each number of
 * them anew.
 */
const valuesOf = ({ events, lane, receipt: { ageMillis, baseOffset, partition } }: Acknowledged) =>
  [lane, events.length === 0 ? [0n] : events.map(({ seq }) => seq), partition, baseOffset, ageMillis?.() ?? 0] as const

/** Pads the runs with empty ones to a power of two: Postgres plans a statement for each number of runs, so seven in all, as a rule. */
const padded = (runs: ReadonlyArray<Acknowledged>): ReadonlyArray<Acknowledged> => {
  const last = runs.at(-1)!
  const length = 2 ** Math.ceil(Math.log2(runs.length))
  return [...runs, ...Array.from({ length: length - runs.length }, () => ({ ...last, events: [] }))]
}

/** Of most lanes of a look. */
const noEvents: ReadonlyArray<QueuedEvent> = []

/** What was fetched, for each part. A row without `followed` ends its lane. */
export const byPart = (parts: ReadonlyArray<LanePart>, rows: Iterable<QueuedEvent>): ReadonlyArray<Fetched> => {
  const lanes = new Map<Lane, Array<QueuedEvent>>()
  let areInOrder = true
  for (const row of rows) {
    const events = lanes.get(row.lane) ?? []
    if (events.length === 0) lanes.set(row.lane, events)
    else if (events.at(-1)!.seq > row.seq) areInOrder = false
    events.push(row)
  }
  return parts.map(({ lane }) => {
    const found = lanes.get(lane) ?? noEvents
    // The plan returns them in order, so the statement has no ORDER BY over all rows.
    const events = areInOrder ? found : found.toSorted((one, other) => Number(one.seq - other.seq))
    return { lane, events, isCut: events.at(-1)?.followed === true }
  })
}

/**
 * All marks lock rows by lane, topic and `seq`: an old owner's and the new owner's can't deadlock. But where a smaller `seq` commits later, two runs of a
 * lane may overlap. Should two marks deadlock there, Postgres ends one, and it is repeated. Other statements skip locked rows, or hold no lock while they
 * wait.
 */
const inLockOrder = (runs: ReadonlyArray<Acknowledged>): ReadonlyArray<Acknowledged> =>
  runs.toSorted(
    (one, other) =>
      one.lane - other.lane ||
      (one.topic < other.topic ? -1 : one.topic > other.topic ? 1 : Number(one.events[0]!.seq - other.events[0]!.seq))
  )
