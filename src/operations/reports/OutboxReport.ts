/** The operator's view of the outbox: counts by state, a list of events, failures by cause, and all that is known of one event. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { headersOf } from "../../brokers/Envelope.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pages from "../../platform/Pages.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { AppliedEvents } from "../AppliedEvents.ts"
import { EventUnknown } from "../DeadLetters.ts"
import * as EventStory from "./EventStory.ts"
import { DeliveryState, timelinePage } from "../History.ts"
import { InboxReport } from "./InboxReport.ts"
import type { Filter } from "../OutboxDeadLetters.ts"
import * as ReportSql from "./ReportSql.ts"
import { causeOf, counted, countLimit, failedSo, inLast, listLimit, matching, type PageOptions } from "./ReportSql.ts"

/** How many events are in which state. Each is counted up to `countLimit`. */
export const Status = Schema.Struct({
  queued: Schema.Int,
  ...ReportSql.Retrying.fields,
  parked: Schema.Int,
  dead: Schema.Int,
  discarded: Schema.Int,
  /** Of the queue; 0 when it is empty. */
  oldestQueuedSeconds: Schema.Finite,
  /** Aggregates that wait for an operator. */
  aggregatesWaiting: Schema.Int
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
  aggregateVersion: Schema.Int,
  occurredAt: Schema.String,
  lane: Schema.NullOr(Schema.Int),
  attempts: Schema.NullOr(Schema.Int),
  nextAttemptAt: Schema.NullOr(Schema.String),
  lastError: Schema.NullOr(Schema.String)
})
export type Entry = typeof Entry.Type

/** All that is known of one event. */
export const Details = Schema.Struct({
  ...Entry.fields,
  schemaVersion: Schema.Int,
  traceId: Schema.String,
  partition: Schema.NullOr(Schema.Int),
  offset: Schema.NullOr(Schema.String),
  publishedAt: Schema.NullOr(Schema.String),
  /** Refused sends: the last ones. */
  history: Schema.Array(EventStory.Attempt),
  /** Events of its aggregate that are parked now. */
  aggregateParked: Schema.Int,
  audit: Schema.Array(EventStory.Decision),
  /** All of that, and what else happened to it, in the order of time: also after it was published, at each consumer. */
  story: Schema.Array(EventStory.Step),
  /** Of its record at the broker. */
  headers: Schema.Record(Schema.String, Schema.String),
  /** The data that its writer stored. */
  data: Schema.Json
})
export type Details = typeof Details.Type

const Stored = Schema.Struct({
  ...Entry.fields,
  schemaVersion: Schema.Int,
  traceId: Schema.String,
  spanId: Schema.String,
  /** JSON. */
  data: Schema.String,
  partition: Schema.NullOr(Schema.Int),
  offset: Schema.NullOr(Schema.String),
  publishedAt: Schema.NullOr(Schema.String),
  endedAt: Schema.NullOr(Schema.String),
  history: Schema.Array(EventStory.Attempt),
  aggregateParked: Schema.Int,
  audit: Schema.Array(EventStory.Decision)
})

const detailsOf = (
  { data, endedAt, spanId, ...event }: typeof Stored.Type,
  atConsumers: ReadonlyArray<EventStory.Step>
): Details => {
  const { attempts, audit, eventType, history, offset, partition, publishedAt, status, topic } = event
  return {
    ...event,
    story: EventStory.make(history, "was refused", audit, [
      { at: event.occurredAt, what: `${eventType}, version ${event.aggregateVersion}, was written` },
      { at: publishedAt, what: `published to ${topic}, partition ${partition}, offset ${offset}` },
      { at: endedAt, what: `${status} after ${countOf(attempts ?? 0, "attempt")}` },
      ...atConsumers
    ]),
    headers: headersOf({ ...event, spanId, data }),
    data: JSON.parse(data) as Schema.Json
  }
}

/** Events that the broker refuses for the same reason: their last errors differ in numbers and ids alone. */
export const Cause = Schema.Struct({
  topic: Schema.String,
  eventType: Schema.String,
  status: Schema.Literals(["dead", "retrying"]),
  cause: Schema.String,
  count: Schema.Int,
  /** When the first and the last of them occurred. */
  first: Schema.String,
  last: Schema.String
})
export type Cause = typeof Cause.Type

const oneStatus = Rows.one(Status)
const allEntries = Rows.all(Entry)
const allCauses = Rows.all(Cause)
const allVersions = Rows.all(Schema.Struct({ eventId: Schema.String, version: Schema.Int }))
const firstStored = Rows.first(Stored)

const entryColumns = `s.event_id::text AS "eventId", s.status, s.topic, s.event_type AS "eventType", s.aggregate_type AS "aggregateType",
  s.aggregate_id AS "aggregateId", s.aggregate_version AS "aggregateVersion", ${isoTime("s.occurred_at")} AS "occurredAt", s.lane,
  s.attempts, ${isoTime("s.next_attempt_at")} AS "nextAttemptAt", s.last_error AS "lastError"`

/** The states that are listed. Published events are in the archive. */
export const Listed = Schema.Literals(["dead", "retrying", "parked", "discarded", "queued"])
export type Listed = typeof Listed.Type

/** Dead letters have a table of their own. For any other state the view looks through the queue, too. */
const deadLetters = `(SELECT *, NULL::timestamptz AS next_attempt_at FROM outbox_dead_letters)`

/** The refused events, with their last errors. */
const refused = `
  SELECT event_id, topic, event_type, aggregate_id, status, occurred_at, last_error FROM outbox_dead_letters WHERE status = 'dead'
  UNION ALL
  SELECT p.event_id, p.topic, p.event_type, p.aggregate_id, 'retrying', p.occurred_at, h.last_error
  FROM outbox_holds AS h JOIN outbox_parked AS p USING (aggregate_type, aggregate_id)
  WHERE h.next_attempt_at IS NOT NULL AND p.seq = h.seq`

export class OutboxReport extends Context.Service<
  OutboxReport,
  {
    readonly status: Effect.Effect<Status>
    /** Events in one of these states, the newest id first. An id tells about when its event was written. */
    readonly list: (
      states: ReadonlyArray<Listed>,
      filter: Filter,
      page: PageOptions
    ) => Effect.Effect<Pages.Page<Entry>>
    /** Why the broker refuses the events that match, the most frequent cause first. */
    readonly causes: (filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Cause>>
    /**
     * The event, and its story also at these consumers. A skip of its version is found if the event that the consumer went on with is in the
     * archive, among the next {@link timelinePage} of its aggregate.
     */
    readonly show: (eventId: string, consumers: ReadonlyArray<string>) => Effect.Effect<Details, EventUnknown>
  }
>()("paid-once/operations/reports/OutboxReport") {
  static readonly layer: Layer.Layer<OutboxReport, never, SqlClient.SqlClient> = Layer.effect(
    OutboxReport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const appliedEvents = yield* AppliedEvents
      const inbox = yield* InboxReport

      const status = Effect.orDie(
        oneStatus(sql`
          SELECT ${counted(sql, "queued", sql`outbox_events AS e WHERE NOT EXISTS (SELECT FROM outbox_holds AS h WHERE (h.aggregate_type, h.aggregate_id) = (e.aggregate_type, e.aggregate_id))`)},
                 ${ReportSql.retryingOf(sql, sql`outbox_holds WHERE next_attempt_at IS NOT NULL`)},
                 ${counted(sql, "parked", sql`outbox_status WHERE status = 'parked'`)},
                 ${counted(sql, "dead", sql`outbox_dead_letters WHERE status = 'dead'`)},
                 ${counted(sql, "discarded", sql`outbox_dead_letters WHERE status = 'discarded'`)},
                 ${counted(sql, "aggregatesWaiting", sql`outbox_holds WHERE next_attempt_at IS NULL`)},
                 coalesce((SELECT extract(epoch FROM clock_now() - min(occurred_at)) FROM outbox_events), 0)::float8 AS "oldestQueuedSeconds"`)
      )

      const conditions = ({ aggregateId, cause, eventType, sinceSeconds, topic }: Filter) =>
        sql.and([
          matching(sql, { "s.topic": topic, "s.event_type": eventType, "s.aggregate_id": aggregateId }),
          inLast(sql, "s.occurred_at", sinceSeconds),
          failedSo(sql, "s.last_error", cause)
        ])

      const list = Effect.fn("OutboxReport.list")(function* (
        states: ReadonlyArray<Listed>,
        filter: Filter,
        page: PageOptions
      ) {
        const limit = Math.min(page.limit, listLimit)
        const areEnded = states.every((state) => state === "dead" || state === "discarded")
        const found = yield* allEntries(sql`
          SELECT ${sql.literal(entryColumns)} FROM ${sql.literal(areEnded ? deadLetters : "outbox_status")} AS s
          WHERE s.status = ANY (${[...states]}::text[])
            -- Lets the planner leave the archive out of the view.
            AND s.status <> 'published'
            AND ${page.cursor === undefined ? sql`TRUE` : sql`s.event_id < ${page.cursor}::uuid`} AND ${conditions(filter)}
          ORDER BY s.event_id DESC LIMIT ${limit + 1}`)
        return Pages.pageBy(found, limit, ({ eventId }) => eventId)
      }, Effect.orDie)

      const causes = Effect.fn("OutboxReport.causes")(
        (filter: Filter, limit: number) =>
          allCauses(sql`
            SELECT topic, event_type AS "eventType", status, cause, count(*)::int4 AS count,
                   ${sql.literal(isoTime("min(occurred_at)"))} AS first, ${sql.literal(isoTime("max(occurred_at)"))} AS last
            FROM (SELECT s.*, ${sql.literal(causeOf("s.last_error"))} AS cause FROM (${sql.literal(refused)}) AS s
                  WHERE ${conditions(filter)} LIMIT ${countLimit}) AS refused
            GROUP BY topic, event_type, status, cause ORDER BY count DESC, topic, event_type, status, cause
            LIMIT ${Math.min(limit, listLimit)}`),
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

      const later = ({ aggregateId, aggregateVersion }: Entry) =>
        allVersions(sql`
          SELECT event_id::text AS "eventId", aggregate_version AS version FROM event_log
          WHERE aggregate_id = ${aggregateId} AND aggregate_version > ${aggregateVersion}::int4
          ORDER BY aggregate_version LIMIT ${timelinePage}`)

      const atConsumers = Effect.fnUntraced(function* (event: Entry, consumers: ReadonlyArray<string>) {
        const { aggregateVersion: version, eventId } = event
        const steps = yield* Effect.forEach(consumers, (consumer) =>
          inbox.show(consumer, eventId).pipe(
            Effect.map(({ story }) =>
              story.map((step) =>
                step.what.startsWith(`${consumer} `) ? step : { ...step, what: `${consumer}: ${step.what}` }
              )
            ),
            Effect.catchTag("EventUnknown", () => Effect.succeed<ReadonlyArray<EventStory.Step>>([]))
          )
        )
        const skips = yield* appliedEvents.skips(consumers, [
          { eventId, version },
          ...(yield* Effect.orDie(later(event)))
        ])
        return [
          ...steps.flat(),
          ...skips
            .filter((skip) => skip.eventId === eventId)
            .map(({ actor, at, consumer, reason }) => ({
              at,
              what: `${consumer} went on without it: ${reason}`,
              by: actor
            }))
        ]
      })

      const show = Effect.fn("OutboxReport.show")(function* (eventId: string, consumers: ReadonlyArray<string>) {
        const found = yield* Effect.orDie(stored(eventId))
        if (found === undefined) return yield* new EventUnknown({ eventId })
        return detailsOf(found, yield* atConsumers(found, consumers))
      })

      return OutboxReport.of({ status, list, causes, show })
    })
  ).pipe(Layer.provide([AppliedEvents.layer, InboxReport.layer]))
}
