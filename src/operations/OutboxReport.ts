/** The operator's view of the outbox: counts by state, a list of events, why they wait, and all that is known of one event. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { headersOf } from "../brokers/Envelope.ts"
import { isoTime } from "../platform/IsoTime.ts"
import * as Pages from "../platform/Pages.ts"
import * as Rows from "../platform/Rows.ts"
import { EventUnknown } from "./DeadLetters.ts"
import * as EventStory from "./EventStory.ts"
import { DeliveryState } from "./History.ts"
import type { Filter as LetterFilter } from "./OutboxDeadLetters.ts"
import { causeOf, counted, countLimit, listLimit, matching, narrowed, type Page } from "./ReportSql.ts"

/** How many events are in which state. Each is counted up to `countLimit`. */
export const Status = Schema.Struct({
  queued: Schema.Number,
  retrying: Schema.Number,
  parked: Schema.Number,
  dead: Schema.Number,
  discarded: Schema.Number,
  /** Of the queue; 0 when it is empty. */
  oldestQueuedSeconds: Schema.Number,
  /** Aggregates that wait for an operator. */
  aggregatesWaiting: Schema.Number
})
export type Status = typeof Status.Type

/** An event and its state. */
export const Entry = Schema.Struct({
  eventId: Schema.String,
  status: DeliveryState,
  topic: Schema.String,
  eventType: Schema.String,
  aggregateType: Schema.String,
  aggregateId: Schema.String,
  aggregateVersion: Schema.Number,
  occurredAt: Schema.String,
  lane: Schema.NullOr(Schema.Number),
  attempts: Schema.NullOr(Schema.Number),
  nextAttemptAt: Schema.NullOr(Schema.String),
  lastError: Schema.NullOr(Schema.String)
})
export type Entry = typeof Entry.Type

/** Refused events that wait for the same reason: their last errors differ in numbers and ids alone. */
export const Cause = Schema.Struct({
  status: Schema.Literals(["retrying", "dead"]),
  topic: Schema.String,
  eventType: Schema.String,
  cause: Schema.String,
  count: Schema.Int,
  /** When the first and the last of them occurred. */
  first: Schema.String,
  last: Schema.String
})
export type Cause = typeof Cause.Type

/** What the tables have of one event. */
const Stored = Schema.Struct({
  ...Entry.fields,
  schemaVersion: Schema.Int,
  traceId: Schema.String,
  spanId: Schema.String,
  data: Schema.String,
  partition: Schema.NullOr(Schema.Number),
  offset: Schema.NullOr(Schema.String),
  publishedAt: Schema.NullOr(Schema.String),
  endedAt: Schema.NullOr(Schema.String),
  history: Schema.Array(EventStory.Attempt),
  aggregateParked: Schema.Number,
  audit: Schema.Array(EventStory.Decision)
})

/** All that is known of one event. */
export const Details = Schema.Struct({
  ...Entry.fields,
  schemaVersion: Schema.Int,
  traceId: Schema.String,
  partition: Schema.NullOr(Schema.Number),
  offset: Schema.NullOr(Schema.String),
  publishedAt: Schema.NullOr(Schema.String),
  /** Events of its aggregate that are parked now. */
  aggregateParked: Schema.Number,
  /** What happened to it, in the order of time: also after it was published. */
  story: Schema.Array(EventStory.Step),
  /** Of its record at the broker. */
  headers: Schema.Record(Schema.String, Schema.String),
  /** The data that its writer stored. */
  data: Schema.Json
})
export type Details = typeof Details.Type

/** A page, newest first. */
export interface EntryPage {
  readonly items: ReadonlyArray<Entry>
  readonly nextCursor: string | null
}

const oneStatus = Rows.one(Status)
const allEntries = Rows.all(Entry)
const allCauses = Rows.all(Cause)
const firstStored = Rows.first(Stored)

const entryColumns = `s.event_id::text AS "eventId", s.status, s.topic, s.event_type AS "eventType", s.aggregate_type AS "aggregateType",
  s.aggregate_id AS "aggregateId", s.aggregate_version AS "aggregateVersion", ${isoTime("s.occurred_at")} AS "occurredAt", s.lane,
  s.attempts, ${isoTime("s.next_attempt_at")} AS "nextAttemptAt", s.last_error AS "lastError"`

type Listed = Exclude<DeliveryState, "published">

/** Which events; a field that is not set matches all. `sinceSeconds` counts from when they occurred. */
export interface Filter extends LetterFilter {
  readonly states: ReadonlyArray<Listed>
}

const detailsOf = ({ audit, data, endedAt, history, spanId, ...event }: typeof Stored.Type): Details => {
  const { attempts, eventType, offset, partition, publishedAt, status, topic } = event
  return {
    ...event,
    story: EventStory.make(history, "was refused", audit, [
      { at: event.occurredAt, what: `${eventType}, version ${event.aggregateVersion}, was written` },
      { at: publishedAt, what: `published to ${topic}, partition ${partition}, offset ${offset}` },
      { at: endedAt, what: `${status} after ${attempts} attempts` }
    ]),
    headers: headersOf({ ...event, spanId, data }),
    data: JSON.parse(data) as Schema.Json
  }
}

export class OutboxReport extends Context.Service<
  OutboxReport,
  {
    readonly status: Effect.Effect<Status>
    /** Events that match, newest first. Published ones are in the archive: `EventSearch` finds them. */
    readonly list: (filter: Filter, page: Page) => Effect.Effect<EntryPage>
    /** Why the retrying and dead events that match wait, the most frequent cause first. */
    readonly causes: (filter: LetterFilter, limit: number) => Effect.Effect<ReadonlyArray<Cause>>
    readonly show: (eventId: string) => Effect.Effect<Details, EventUnknown>
  }
>()("paid-once/operations/OutboxReport") {
  static readonly layer: Layer.Layer<OutboxReport, never, SqlClient.SqlClient> = Layer.effect(
    OutboxReport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const status = Effect.orDie(
        oneStatus(sql`
          SELECT ${counted(sql, "queued", sql`outbox_events AS e WHERE NOT EXISTS (SELECT FROM outbox_holds AS h WHERE (h.aggregate_type, h.aggregate_id) = (e.aggregate_type, e.aggregate_id))`)},
                 ${counted(sql, "retrying", sql`outbox_holds WHERE next_attempt_at IS NOT NULL`)},
                 ${counted(sql, "parked", sql`outbox_status WHERE status = 'parked'`)},
                 ${counted(sql, "dead", sql`outbox_dead_letters WHERE status = 'dead'`)},
                 ${counted(sql, "discarded", sql`outbox_dead_letters WHERE status = 'discarded'`)},
                 ${counted(sql, "aggregatesWaiting", sql`outbox_holds WHERE next_attempt_at IS NULL`)},
                 coalesce((SELECT extract(epoch FROM clock_now() - min(occurred_at)) FROM outbox_events), 0)::float8 AS "oldestQueuedSeconds"`)
      )

      const conditions = (filter: LetterFilter) =>
        sql.and([
          matching(sql, {
            "s.topic": filter.topic,
            "s.event_type": filter.eventType,
            "s.aggregate_id": filter.aggregateId
          }),
          narrowed(sql, filter, { error: "s.last_error", at: "s.occurred_at" })
        ])

      const list = Effect.fn("OutboxReport.list")(function* (filter: Filter, page: Page) {
        const limit = Math.min(page.limit, listLimit)
        // The second condition on the status lets the planner leave the archive out of the view.
        const rows = yield* allEntries(sql`
          SELECT ${sql.literal(entryColumns)} FROM outbox_status AS s
          WHERE s.status = ANY (${[...filter.states]}::text[]) AND s.status <> 'published' AND ${conditions(filter)}
            AND ${page.cursor === undefined ? sql`TRUE` : sql`s.event_id < ${page.cursor}::uuid`}
          ORDER BY s.event_id DESC LIMIT ${limit + 1}`)
        return Pages.by(rows, limit, ({ eventId }) => eventId)
      }, Effect.orDie)

      const causes = Effect.fn("OutboxReport.causes")(
        (filter: LetterFilter, limit: number) =>
          allCauses(sql`
            SELECT status, topic, event_type AS "eventType", cause, count(*)::int4 AS count,
                   ${sql.literal(isoTime("min(occurred_at)"))} AS first, ${sql.literal(isoTime("max(occurred_at)"))} AS last
            FROM (SELECT s.status, s.topic, s.event_type, ${sql.literal(causeOf("s.last_error"))} AS cause, s.occurred_at
                  FROM outbox_status AS s WHERE s.status IN ('retrying', 'dead') AND ${conditions(filter)} LIMIT ${countLimit}) AS waiting
            GROUP BY status, topic, event_type, cause
            ORDER BY count DESC, status, topic, event_type, cause LIMIT ${Math.min(limit, listLimit)}`),
        Effect.orDie
      )

      const stored = (eventId: string) =>
        firstStored(sql`
          SELECT ${sql.literal(entryColumns)}, s.schema_version AS "schemaVersion", s.trace_id AS "traceId", s.span_id AS "spanId",
                 s.data::text AS data, s.broker_partition AS partition, s.broker_offset::text AS "offset",
                 ${sql.literal(isoTime("s.published_at"))} AS "publishedAt",
                 (SELECT ${sql.literal(isoTime("ended_at"))} FROM outbox_dead_letters AS d WHERE d.event_id = s.event_id) AS "endedAt",
                 coalesce(s.history, '[]') AS history,
                 (SELECT count(*) FROM outbox_parked AS p
                  WHERE p.aggregate_type = s.aggregate_type AND p.aggregate_id = s.aggregate_id)::int4 AS "aggregateParked",
                 ${sql.literal(EventStory.decisionsOf("outbox event", "s.event_id::text"))} AS audit
          FROM outbox_status AS s WHERE s.event_id = ${eventId}::uuid`)

      const show = Effect.fn("OutboxReport.show")(function* (eventId: string) {
        const found = yield* Effect.orDie(stored(eventId))
        return detailsOf(found ?? (yield* new EventUnknown({ eventId })))
      })

      return OutboxReport.of({ status, list, causes, show })
    })
  )
}
