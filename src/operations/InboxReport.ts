/** The operator's view of the inbox: counts of waiting events, and a list of them. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../platform/IsoTime.ts"
import * as Rows from "../platform/Rows.ts"
import type { Filter } from "./InboxDeadLetters.ts"
import { counted, listLimit, matching } from "./ReportSql.ts"

/** The state of an event that a consumer has not applied: `gap` waits for an earlier version, `parked` behind another event. */
export const State = Schema.Literals(["retrying", "gap", "parked", "dead", "discarded"])
export type State = typeof State.Type

/** An event that a consumer has not applied. */
export const Entry = Schema.Struct({
  consumer: Schema.String,
  /** The event's id, or `topic:partition:offset` of a record that can't be read. */
  eventId: Schema.String,
  status: State,
  /** Null: the record can't be read. */
  eventType: Schema.NullOr(Schema.String),
  aggregateId: Schema.String,
  aggregateVersion: Schema.NullOr(Schema.Number),
  topic: Schema.String,
  partition: Schema.Number,
  offset: Schema.String,
  attempts: Schema.NullOr(Schema.Number),
  nextAttemptAt: Schema.NullOr(Schema.String),
  lastError: Schema.NullOr(Schema.String)
})
export type Entry = typeof Entry.Type

/** Waiting events of one consumer. Each is counted up to `countLimit`. */
export const Counts = Schema.Struct({
  parked: Schema.Number,
  dead: Schema.Number,
  /** Aggregates that wait for an event that has not come. */
  gaps: Schema.Number
})
export type Counts = typeof Counts.Type

const allEntries = Rows.all(Entry)
const oneCounts = Rows.one(Counts)

const entries = `
  SELECT p.consumer_name, p.event_id, CASE WHEN p.event_id = h.event_id THEN h.status ELSE 'parked' END AS status, p.event_type,
         p.aggregate_id, p.aggregate_version, p.position, p.topic, p.broker_partition, p.broker_offset,
         CASE WHEN p.event_id = h.event_id THEN h.attempts END AS attempts,
         CASE WHEN p.event_id = h.event_id THEN h.next_attempt_at END AS next_attempt_at,
         CASE WHEN p.event_id = h.event_id THEN h.last_error END AS last_error
  FROM inbox_parked AS p JOIN inbox_holds AS h USING (consumer_name, aggregate_id)
  UNION ALL
  SELECT consumer_name, event_id, status, event_type, aggregate_id, aggregate_version, position, topic, broker_partition, broker_offset,
         attempts, NULL, last_error
  FROM inbox_dead_letters`

export class InboxReport extends Context.Service<
  InboxReport,
  {
    /** Events in one of these states, by consumer, aggregate and position, at most `limit`. */
    readonly list: (states: ReadonlyArray<State>, filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Entry>>
    readonly counts: (consumer: string) => Effect.Effect<Counts>
  }
>()("paid-once/operations/InboxReport") {
  static readonly layer: Layer.Layer<InboxReport, never, SqlClient.SqlClient> = Layer.effect(
    InboxReport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const list = Effect.fn("InboxReport.list")(
        (states: ReadonlyArray<State>, filter: Filter, limit: number) =>
          allEntries(sql`
            SELECT e.consumer_name AS consumer, e.event_id AS "eventId", e.status, e.event_type AS "eventType",
                   e.aggregate_id AS "aggregateId", e.aggregate_version AS "aggregateVersion", e.topic,
                   e.broker_partition AS partition, e.broker_offset::text AS "offset", e.attempts,
                   ${sql.literal(isoTime("e.next_attempt_at"))} AS "nextAttemptAt", e.last_error AS "lastError"
            FROM (${sql.literal(entries)}) AS e
            WHERE e.status = ANY (${[...states]}::text[])
              AND ${matching(sql, { "e.consumer_name": filter.consumer, "e.event_type": filter.eventType, "e.aggregate_id": filter.aggregateId })}
            ORDER BY e.consumer_name, e.aggregate_id, e.position, e.broker_offset LIMIT ${Math.min(limit, listLimit)}`),
        Effect.orDie
      )

      const counts = Effect.fn("InboxReport.counts")(
        (consumer: string) =>
          oneCounts(sql`
            SELECT ${counted(sql, "parked", sql`inbox_parked WHERE consumer_name = ${consumer}`)},
                   ${counted(sql, "dead", sql`inbox_dead_letters WHERE status = 'dead' AND consumer_name = ${consumer}`)},
                   ${counted(sql, "gaps", sql`inbox_holds WHERE status = 'gap' AND consumer_name = ${consumer}`)}`),
        Effect.orDie
      )

      return InboxReport.of({ list, counts })
    })
  )
}
