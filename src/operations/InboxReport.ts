/** The operator's view of the inbox: counts of waiting events, a list of them, and failures by cause. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../platform/IsoTime.ts"
import * as Pages from "../platform/Pages.ts"
import * as Rows from "../platform/Rows.ts"
import type { Filter } from "./InboxDeadLetters.ts"
import { causeOf, counted, countLimit, failedSo, inLast, listLimit, matching, type PageOptions } from "./ReportSql.ts"

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
  aggregateVersion: Schema.NullOr(Schema.Int),
  topic: Schema.String,
  partition: Schema.Int,
  offset: Schema.String,
  attempts: Schema.NullOr(Schema.Int),
  nextAttemptAt: Schema.NullOr(Schema.String),
  lastError: Schema.NullOr(Schema.String),
  /** Since when it waits. */
  parkedAt: Schema.String
})
export type Entry = typeof Entry.Type

/** Events that a consumer can't apply for the same reason: their last errors differ in numbers and ids alone. */
export const Cause = Schema.Struct({
  consumer: Schema.String,
  /** Null: the records can't be read. */
  eventType: Schema.NullOr(Schema.String),
  status: Schema.Literals(["dead", "retrying"]),
  cause: Schema.String,
  count: Schema.Int,
  /** Since when the first and the last of them wait. */
  first: Schema.String,
  last: Schema.String
})
export type Cause = typeof Cause.Type

/** The end of a page: an event of a consumer, as {@link cursorOf} writes it. */
export const Cursor = Schema.String.check(
  Schema.isMaxLength(400),
  Schema.isPattern(/^[^\s\0]+ [^\s\0]+$/, { message: "must be the nextCursor of the page before" })
)

/** Neither part has a space: one is a UUID or `topic:partition:offset`, the other a consumer group. */
const cursorOf = ({ consumer, eventId }: Entry): string => `${eventId} ${consumer}`

/** Waiting events of one consumer. Each is counted up to `countLimit`. */
export const Counts = Schema.Struct({
  parked: Schema.Int,
  dead: Schema.Int,
  /** Aggregates that wait for an event that has not come. */
  gaps: Schema.Int
})
export type Counts = typeof Counts.Type

const allEntries = Rows.all(Entry)
const allCauses = Rows.all(Cause)
const oneCounts = Rows.one(Counts)

const entries = `
  SELECT p.consumer_name, p.event_id, CASE WHEN p.event_id = h.event_id THEN h.status ELSE 'parked' END AS status, p.event_type,
         p.aggregate_id, p.aggregate_version, p.position, p.topic, p.broker_partition, p.broker_offset, p.parked_at,
         CASE WHEN p.event_id = h.event_id THEN h.attempts END AS attempts,
         CASE WHEN p.event_id = h.event_id THEN h.next_attempt_at END AS next_attempt_at,
         CASE WHEN p.event_id = h.event_id THEN h.last_error END AS last_error
  FROM inbox_parked AS p JOIN inbox_holds AS h USING (consumer_name, aggregate_id)
  UNION ALL
  SELECT consumer_name, event_id, status, event_type, aggregate_id, aggregate_version, position, topic, broker_partition, broker_offset,
         parked_at, attempts, NULL, last_error
  FROM inbox_dead_letters`

export class InboxReport extends Context.Service<
  InboxReport,
  {
    /** Events in one of these states, the newest id first. */
    readonly list: (states: ReadonlyArray<State>, filter: Filter, page: PageOptions) => Effect.Effect<Pages.Page<Entry>>
    /** Why the consumers can't apply the events that match, the most frequent cause first. */
    readonly causes: (filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Cause>>
    readonly counts: (consumer: string) => Effect.Effect<Counts>
  }
>()("paid-once/operations/InboxReport") {
  static readonly layer: Layer.Layer<InboxReport, never, SqlClient.SqlClient> = Layer.effect(
    InboxReport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const conditions = ({ aggregateId, cause, consumer, eventType, sinceSeconds }: Filter) =>
        sql.and([
          matching(sql, { "e.consumer_name": consumer, "e.event_type": eventType, "e.aggregate_id": aggregateId }),
          inLast(sql, "e.parked_at", sinceSeconds),
          failedSo(sql, "e.last_error", cause)
        ])

      const list = Effect.fn("InboxReport.list")(function* (
        states: ReadonlyArray<State>,
        filter: Filter,
        page: PageOptions
      ) {
        const limit = Math.min(page.limit, listLimit)
        const [eventId, consumer] = page.cursor?.split(" ") ?? []
        const found = yield* allEntries(sql`
          SELECT e.consumer_name AS consumer, e.event_id AS "eventId", e.status, e.event_type AS "eventType",
                 e.aggregate_id AS "aggregateId", e.aggregate_version AS "aggregateVersion", e.topic,
                 e.broker_partition AS partition, e.broker_offset::text AS "offset", e.attempts,
                 ${sql.literal(isoTime("e.next_attempt_at"))} AS "nextAttemptAt", e.last_error AS "lastError",
                 ${sql.literal(isoTime("e.parked_at"))} AS "parkedAt"
          FROM (${sql.literal(entries)}) AS e
          WHERE e.status = ANY (${[...states]}::text[]) AND ${conditions(filter)}
            AND ${eventId === undefined || consumer === undefined ? sql`TRUE` : sql`(e.event_id, e.consumer_name) < (${eventId}, ${consumer})`}
          ORDER BY e.event_id DESC, e.consumer_name DESC LIMIT ${limit + 1}`)
        return Pages.pageBy(found, limit, cursorOf)
      }, Effect.orDie)

      const causes = Effect.fn("InboxReport.causes")(
        (filter: Filter, limit: number) =>
          allCauses(sql`
            SELECT consumer_name AS consumer, event_type AS "eventType", status, cause, count(*)::int4 AS count,
                   ${sql.literal(isoTime("min(parked_at)"))} AS first, ${sql.literal(isoTime("max(parked_at)"))} AS last
            FROM (SELECT e.*, ${sql.literal(causeOf("e.last_error"))} AS cause FROM (${sql.literal(entries)}) AS e
                  WHERE e.status IN ('dead', 'retrying') AND ${conditions(filter)} LIMIT ${countLimit}) AS failing
            GROUP BY consumer_name, event_type, status, cause ORDER BY count DESC, consumer_name, event_type, status, cause
            LIMIT ${Math.min(limit, listLimit)}`),
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

      return InboxReport.of({ list, causes, counts })
    })
  )
}
