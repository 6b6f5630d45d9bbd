/** The operator's view of the inbox: counts of waiting events, a list of them, failures by cause, and all that is known of one event. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import * as HeldRows from "../../inbox/holds/HeldRows.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pages from "../../platform/Pages.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { EventUnknown } from "../DeadLetters.ts"
import * as EventStory from "./EventStory.ts"
import type { Filter } from "../InboxDeadLetters.ts"
import * as ReportSql from "./ReportSql.ts"
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
  /** Tried again. Each holds its aggregate. */
  retrying: Schema.Int,
  /** Waiting behind an event that is retrying, dead, or ahead of a gap. */
  parked: Schema.Int,
  dead: Schema.Int,
  /** Aggregates that wait for an event that has not come. */
  gaps: Schema.Int
})
export type Counts = typeof Counts.Type

/** Events of one consumer by state, with the age of the oldest that waits. Each is counted up to `countLimit`. */
export const Status = Schema.Struct({
  consumer: Schema.String,
  ...Counts.fields,
  ...ReportSql.Retrying.fields,
  discarded: Schema.Finite,
  /** Since when the aggregate is held that was held first; null where none is. */
  oldestHeldSeconds: Schema.NullOr(Schema.Finite)
})
export type Status = typeof Status.Type

/** What is known of an event as it is. Of one that is applied most is null: the archive has it. */
const Known = Schema.Struct({
  status: Schema.Literals([...State.literals, "applied"]),
  /** Null: the record can't be read. */
  eventType: Schema.NullOr(Schema.String),
  aggregateId: Schema.NullOr(Schema.String),
  aggregateVersion: Schema.NullOr(Schema.Int),
  topic: Schema.NullOr(Schema.String),
  partition: Schema.NullOr(Schema.Int),
  offset: Schema.NullOr(Schema.String),
  attempts: Schema.NullOr(Schema.Int),
  nextAttemptAt: Schema.NullOr(Schema.String),
  lastError: Schema.NullOr(Schema.String),
  /** The record's key and headers, as they came. */
  key: Schema.NullOr(Schema.String),
  headers: Schema.NullOr(Schema.Record(Schema.String, Schema.String))
})

const Stored = Schema.Struct({
  ...Known.fields,
  value: Schema.NullOr(Schema.Uint8Array),
  parkedAt: Schema.NullOr(Schema.String),
  endedAt: Schema.NullOr(Schema.String),
  appliedAt: Schema.NullOr(Schema.String),
  history: Schema.Array(EventStory.Attempt),
  audit: Schema.Array(EventStory.Decision)
})

/** All that the inbox knows of one event of a consumer. */
export const Details = Schema.Struct({
  consumer: Schema.String,
  eventId: Schema.String,
  ...Known.fields,
  /** The record's value as text: what is not UTF-8 is shown by replacement characters. */
  payload: Schema.NullOr(Schema.String),
  /** Failures: the last ones. */
  history: Schema.Array(EventStory.Attempt),
  audit: Schema.Array(EventStory.Decision),
  /** All of that, and what else happened to it, in the order of time: also after it was applied. */
  story: Schema.Array(EventStory.Step)
})
export type Details = typeof Details.Type

const allEntries = Rows.all(Entry)
const allStatus = Rows.all(Status)
const firstStored = Rows.first(Stored)
const allCauses = Rows.all(Cause)
const oneCounts = Rows.one(Counts)

const times = `${isoTime("e.next_attempt_at")} AS "nextAttemptAt", ${isoTime("e.parked_at")} AS "parkedAt"`

const isHead = (column: string) => `CASE WHEN p.event_id = h.event_id THEN h.${column} END AS ${column}`

const entries = `
  SELECT ${HeldRows.columns.replaceAll(/(\w+)/g, "p.$1")},
         CASE WHEN p.event_id = h.event_id THEN h.status ELSE 'parked' END AS status,
         ${["attempts", "next_attempt_at", "last_error", "history"].map(isHead).join(", ")}, NULL::timestamptz AS ended_at
  FROM inbox_parked AS p JOIN inbox_holds AS h USING (consumer_name, aggregate_id)
  UNION ALL
  SELECT ${HeldRows.columns}, status, attempts, NULL, last_error, history, ended_at FROM inbox_dead_letters`

const detailsOf = (consumer: string, eventId: string, stored: typeof Stored.Type): Details => {
  const { appliedAt, endedAt, parkedAt, value, ...known } = stored
  const { attempts, audit, history, offset, partition, status, topic } = known
  return {
    consumer,
    eventId,
    ...known,
    payload: value === null ? null : decoder.decode(value),
    story: EventStory.make(history, "failed", audit, [
      { at: parkedAt, what: `${consumer} parked it, from ${topic}, partition ${partition}, offset ${offset}` },
      { at: appliedAt, what: `${consumer} applied it` },
      { at: endedAt, what: `${status} after ${countOf(attempts ?? 0, "attempt")}` }
    ])
  }
}

const decoder = new TextDecoder()

export class InboxReport extends Context.Service<
  InboxReport,
  {
    /** Events in one of these states, the newest id first. */
    readonly list: (states: ReadonlyArray<State>, filter: Filter, page: PageOptions) => Effect.Effect<Pages.Page<Entry>>
    /** Why the consumers can't apply the events that match, the most frequent cause first. */
    readonly causes: (filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Cause>>
    readonly counts: (consumer: string) => Effect.Effect<Counts>
    /** Of each of these consumers. */
    readonly status: (consumers: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Status>>
    /** An event of a consumer, by its id or that of a record that can't be read; whether it waits or is applied. */
    readonly show: (consumer: string, eventId: string) => Effect.Effect<Details, EventUnknown>
  }
>()("paid-once/operations/reports/InboxReport") {
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
                 e.last_error AS "lastError", ${sql.literal(times)}
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

      const retrying = (consumer: Statement.Fragment) =>
        // As the index has it: an event that is tried again has a next attempt, and no other has one.
        sql`inbox_holds WHERE next_attempt_at IS NOT NULL AND consumer_name = ${consumer}`
      const waiting = (consumer: Statement.Fragment) => sql`
        ${counted(
          sql,
          "parked",
          sql`inbox_parked AS p WHERE consumer_name = ${consumer} AND NOT EXISTS (
                SELECT FROM inbox_holds AS h
                WHERE (h.consumer_name, h.aggregate_id, h.event_id) = (p.consumer_name, p.aggregate_id, p.event_id))`
        )},
        ${counted(sql, "dead", sql`inbox_dead_letters WHERE status = 'dead' AND consumer_name = ${consumer}`)},
        ${counted(sql, "gaps", sql`inbox_holds WHERE status = 'gap' AND consumer_name = ${consumer}`)}`

      const counts = Effect.fn("InboxReport.counts")(
        (consumer: string) =>
          oneCounts(sql`SELECT ${counted(sql, "retrying", retrying(sql`${consumer}`))}, ${waiting(sql`${consumer}`)}`),
        Effect.orDie
      )

      const status = Effect.fn("InboxReport.status")(
        (consumers: ReadonlyArray<string>) =>
          allStatus(sql`
            SELECT c.name AS consumer,
                   ${ReportSql.retryingOf(sql, retrying(sql`c.name`))}, ${waiting(sql`c.name`)},
                   ${counted(sql, "discarded", sql`inbox_dead_letters WHERE status = 'discarded' AND consumer_name = c.name`)},
                   (SELECT extract(epoch FROM clock_now() - min(held_at)) FROM inbox_holds WHERE consumer_name = c.name)::float8 AS "oldestHeldSeconds"
            FROM unnest(${[...consumers]}::text[]) WITH ORDINALITY AS c(name, turn) ORDER BY c.turn`),
        Effect.orDie
      )

      const stored = (consumer: string, eventId: string) =>
        firstStored(sql`
          SELECT e.status, e.event_type AS "eventType", e.aggregate_id AS "aggregateId", e.aggregate_version AS "aggregateVersion",
                 e.topic, e.broker_partition AS partition, e.broker_offset::text AS "offset", e.record_key AS key,
                 e.record_value AS value, e.record_headers AS headers, e.attempts, e.last_error AS "lastError",
                 ${sql.literal(times)},
                 ${sql.literal(isoTime("e.ended_at"))} AS "endedAt", ${sql.literal(isoTime("e.processed_at"))} AS "appliedAt",
                 coalesce(e.history, '[]') AS history,
                 ${sql.literal(EventStory.decisionsOf("inbox event", "e.consumer_name || ' ' || e.event_id"))} AS audit
          FROM (
            SELECT *, NULL::timestamptz AS processed_at FROM (${sql.literal(entries)}) AS waiting
            WHERE consumer_name = ${consumer} AND event_id = ${eventId}
            UNION ALL
            SELECT consumer_name, NULL, NULL, event_id::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                   'applied', NULL, NULL, NULL, history, NULL, processed_at
            FROM processed_events
            WHERE consumer_name = ${consumer} AND event_id = ${uuid.test(eventId) ? eventId : null}::uuid
            LIMIT 1
          ) AS e`)

      const show = Effect.fn("InboxReport.show")(function* (consumer: string, asked: string) {
        // Postgres writes a UUID in small letters. The name of a record that can't be read is not a UUID.
        const eventId = uuid.test(asked) ? asked.toLowerCase() : asked
        const found = yield* Effect.orDie(stored(consumer, eventId))
        return detailsOf(consumer, eventId, found ?? (yield* new EventUnknown({ consumer, eventId })))
      })

      return InboxReport.of({ list, causes, counts, status, show })
    })
  )
}

const uuid = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i
