/** The operator's view of the outbox: counts by state, a list of events, and all that is known of one event. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../platform/IsoTime.ts"
import * as Rows from "../platform/Rows.ts"
import { EventUnknown } from "./DeadLetters.ts"
import { DeliveryState } from "./History.ts"
import type { Filter } from "./OutboxDeadLetters.ts"
import { counted, listLimit, matching } from "./ReportSql.ts"

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

/** All that is known of one event. */
export const Details = Schema.Struct({
  ...Entry.fields,
  partition: Schema.NullOr(Schema.Number),
  offset: Schema.NullOr(Schema.String),
  publishedAt: Schema.NullOr(Schema.String),
  /** Refused sends: the last ones. */
  history: Schema.Array(Schema.Struct({ attempt: Schema.Number, at: Schema.String, error: Schema.String })),
  /** Events of its aggregate that are parked now. */
  aggregateParked: Schema.Number,
  audit: Schema.Array(
    Schema.Struct({ at: Schema.String, actor: Schema.String, action: Schema.String, reason: Schema.String })
  )
})
export type Details = typeof Details.Type

/** Audit entries of one event that are shown: the last ones. */
const auditLimit = 20

const oneStatus = Rows.one(Status)
const allEntries = Rows.all(Entry)
const firstDetails = Rows.first(Details)

const entryColumns = `s.event_id::text AS "eventId", s.status, s.topic, s.event_type AS "eventType", s.aggregate_type AS "aggregateType",
  s.aggregate_id AS "aggregateId", s.aggregate_version AS "aggregateVersion", ${isoTime("s.occurred_at")} AS "occurredAt", s.lane,
  s.attempts, ${isoTime("s.next_attempt_at")} AS "nextAttemptAt", s.last_error AS "lastError"`

type Listed = Exclude<DeliveryState, "published">

export class OutboxReport extends Context.Service<
  OutboxReport,
  {
    readonly status: Effect.Effect<Status>
    /** Events in one of these states, by aggregate and version, at most `limit`. Published ones are in the archive, and not listed. */
    readonly list: (states: ReadonlyArray<Listed>, filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Entry>>
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

      const list = Effect.fn("OutboxReport.list")(
        (states: ReadonlyArray<Listed>, filter: Filter, limit: number) =>
          // The second condition on the status lets the planner leave the archive out of the view.
          allEntries(sql`
            SELECT ${sql.literal(entryColumns)} FROM outbox_status AS s
            WHERE s.status = ANY (${[...states]}::text[]) AND s.status <> 'published'
              AND ${matching(sql, { "s.topic": filter.topic, "s.event_type": filter.eventType, "s.aggregate_id": filter.aggregateId })}
            ORDER BY s.aggregate_type, s.aggregate_id, s.aggregate_version LIMIT ${Math.min(limit, listLimit)}`),
        Effect.orDie
      )

      const details = (eventId: string) =>
        firstDetails(sql`
          SELECT ${sql.literal(entryColumns)}, s.broker_partition AS partition, s.broker_offset::text AS "offset",
                 ${sql.literal(isoTime("s.published_at"))} AS "publishedAt",
                 coalesce((SELECT history FROM outbox_dead_letters AS d WHERE d.event_id = s.event_id),
                          (SELECT history FROM outbox_holds AS h WHERE h.event_id = s.event_id), '[]') AS history,
                 (SELECT count(*) FROM outbox_parked AS p
                  WHERE p.aggregate_type = s.aggregate_type AND p.aggregate_id = s.aggregate_id)::int4 AS "aggregateParked",
                 (SELECT coalesce(json_agg(json_build_object('at', ${sql.literal(isoTime("a.at"))}, 'actor', a.actor, 'action', a.action, 'reason', a.reason) ORDER BY a.audit_id), '[]')
                  FROM (SELECT * FROM operator_audit
                        WHERE subject = 'outbox event' AND subject_id = s.event_id::text
                        ORDER BY audit_id DESC LIMIT ${auditLimit}) AS a) AS audit
          FROM outbox_status AS s WHERE s.event_id = ${eventId}::uuid`)

      const show = Effect.fn("OutboxReport.show")(function* (eventId: string) {
        return (yield* Effect.orDie(details(eventId))) ?? (yield* new EventUnknown({ eventId }))
      })

      return OutboxReport.of({ status, list, show })
    })
  )
}
