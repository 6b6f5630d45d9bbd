/** What an operator sees of the inbox: how much waits, and which events. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"

/** Which dead letters; what is not set matches all. */
export interface Filter {
  readonly consumer?: string | undefined
  readonly eventType?: string | undefined
  readonly aggregateId?: string | undefined
}

/** Where an event is that a consumer has not applied. `gap` waits for an earlier version; `parked` behind another one. */
export const State = Schema.Literals(["retrying", "gap", "parked", "dead", "discarded"])
export type State = typeof State.Type

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

/** How much waits, of one consumer. Each is counted up to {@link countLimit}. */
export interface Counts {
  readonly parked: number
  readonly dead: number
  /** Aggregates that wait for an event that has not come. */
  readonly gaps: number
}

/** Counting stops here: that there are more is all that anyone needs to know. */
export const countLimit = 100_000

/** The most entries of a list. */
const listLimit = 1_000

const decodeEntries = Schema.decodeUnknownEffect(Schema.Array(Entry))

const time = (expression: string) => `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

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
    /** Events in one of these states, by consumer, aggregate and turn, at most `limit`. */
    readonly list: (states: ReadonlyArray<State>, filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Entry>>
    readonly counts: (consumer: string) => Effect.Effect<Counts>
  }
>()("paid-once/operations/InboxReport") {
  static readonly layer: Layer.Layer<InboxReport, never, SqlClient.SqlClient> = Layer.effect(
    InboxReport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const list = Effect.fn("InboxReport.list")(function* (
        states: ReadonlyArray<State>,
        filter: Filter,
        limit: number
      ) {
        const { aggregateId = null, consumer = null, eventType = null } = filter
        const rows = yield* sql`
          SELECT e.consumer_name AS consumer, e.event_id AS "eventId", e.status, e.event_type AS "eventType",
                 e.aggregate_id AS "aggregateId", e.aggregate_version AS "aggregateVersion", e.topic,
                 e.broker_partition AS partition, e.broker_offset::text AS "offset", e.attempts,
                 ${sql.literal(time("e.next_attempt_at"))} AS "nextAttemptAt", e.last_error AS "lastError"
          FROM (${sql.literal(entries)}) AS e
          WHERE e.status = ANY (${[...states]}::text[])
            AND (${consumer}::text IS NULL OR e.consumer_name = ${consumer})
            AND (${eventType}::text IS NULL OR e.event_type = ${eventType})
            AND (${aggregateId}::text IS NULL OR e.aggregate_id = ${aggregateId})
          ORDER BY e.consumer_name, e.aggregate_id, e.position, e.broker_offset LIMIT ${Math.min(limit, listLimit)}`
        return yield* decodeEntries(rows)
      }, Effect.orDie)

      const counts = Effect.fn("InboxReport.counts")(function* (consumer: string) {
        const [row] = yield* sql<Counts>`
          SELECT (SELECT count(*) FROM (SELECT FROM inbox_parked WHERE consumer_name = ${consumer} LIMIT ${countLimit}) AS p)::int4 AS parked,
                 (SELECT count(*) FROM (SELECT FROM inbox_dead_letters
                                        WHERE status = 'dead' AND consumer_name = ${consumer} LIMIT ${countLimit}) AS d)::int4 AS dead,
                 (SELECT count(*) FROM (SELECT FROM inbox_holds
                                        WHERE status = 'gap' AND consumer_name = ${consumer} LIMIT ${countLimit}) AS g)::int4 AS gaps`
        return row ?? { parked: 0, dead: 0, gaps: 0 }
      }, Effect.orDie)

      return InboxReport.of({ list, counts })
    })
  )
}
