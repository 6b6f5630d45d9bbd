/** Compares events of a topic with the archive, the outbox and the cursors of the topic's consumers. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { StoredEvent } from "../../brokers/Envelope.ts"
import { aggregateKey } from "../../inbox/Cursors.ts"
import { laneOf } from "../../outbox/Lane.ts"
import * as Rows from "../../platform/Rows.ts"

/** An event of a topic, with its place there. */
export interface TopicEvent extends StoredEvent {
  readonly partition: number
  readonly offset: bigint
  /** When the topic got it. */
  readonly timestampMillis: number
}

/**
 * - `lost`: the archive lacks it, and a consumer has applied its version.
 * - `present`: it is in the archive, or the outbox has it: in the queue, parked, or a dead letter.
 * - `unknown`: no consumer has applied its version. It is about to be applied, or the database is behind its topic (docs/restore.md).
 * - `erased`: the archive has it with another value of its erasable field, which an erasure has left there.
 * - `different`: the archive has other data, or another time, under its id, or another event under its aggregate's version.
 */
export type Standing = "lost" | "present" | "unknown" | "erased" | "different"

const allStandings = Rows.all(
  Schema.Struct({
    isSame: Schema.NullOr(Schema.Boolean),
    isErased: Schema.NullOr(Schema.Boolean),
    isInOutbox: Schema.Boolean,
    isApplied: Schema.Boolean,
    hasOther: Schema.Boolean
  })
)

/** The standing of each event, in their order. It is one statement and one snapshot: an event is in the queue or in the archive. */
export const standingsOf = Effect.fnUntraced(function* (
  topic: string,
  consumers: ReadonlyArray<string>,
  events: ReadonlyArray<TopicEvent>,
  erasable = ""
) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* allStandings(sql`
    WITH found AS (
      SELECT r.*,
             kept.data = r.data AND kept.is_alike AS is_same,
             kept.data = regexp_replace(r.data, '"' || ${erasable} || '":"(?:[^"\\\\]|\\\\.)*"', ${erasable === "" ? sql`NULL` : sql`'"' || ${erasable} || '":"erased-' || r.aggregate || '"'`}) AND kept.is_alike AS is_erased,
             EXISTS (SELECT FROM outbox_events AS q WHERE q.lane = r.lane AND q.event_id = r.id)
               OR EXISTS (SELECT FROM outbox_parked AS p WHERE p.event_id = r.id)
               OR EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.event_id = r.id) AS is_in_outbox,
             EXISTS (SELECT FROM consumer_cursors AS c WHERE c.consumer_name = ANY(${[...consumers]}::text[])
                       AND c.aggregate_id = r.aggregate AND c.aggregate_type = r.type AND c.version >= r.version) AS is_applied
      FROM unnest(${events.map(({ eventId }) => eventId)}::uuid[], ${events.map(({ aggregateId }) => laneOf(aggregateId))}::int2[],
                  ${events.map(({ eventType }) => eventType)}::text[], ${events.map(({ schemaVersion }) => schemaVersion)}::int4[],
                  ${events.map(({ aggregateType }) => aggregateType)}::text[], ${events.map(({ aggregateId }) => aggregateId)}::text[],
                  ${events.map(({ aggregateVersion }) => aggregateVersion)}::int4[], ${events.map(({ data }) => data)}::text[],
                  ${events.map(({ occurredAt }) => occurredAt)}::text[]::timestamptz[])
             WITH ORDINALITY AS r(id, lane, event_type, schema_version, type, aggregate, version, data, occurred_at, position)
      LEFT JOIN LATERAL (
        SELECT l.data::text AS data,
               l.topic = ${topic} AND l.event_type = r.event_type AND l.schema_version = r.schema_version
                 AND l.aggregate_type = r.type AND l.aggregate_id = r.aggregate AND l.aggregate_version = r.version
                 -- An envelope has milliseconds.
                 AND date_trunc('milliseconds', l.occurred_at) = date_trunc('milliseconds', r.occurred_at) AS is_alike
        FROM event_log AS l WHERE l.event_id = r.id) AS kept ON true
    )
    SELECT is_same AS "isSame", is_erased AS "isErased", is_in_outbox AS "isInOutbox", is_applied AS "isApplied",
           -- Looks into each day. So it is asked of the few events that are to be written.
           CASE WHEN is_same IS NULL AND is_applied AND NOT is_in_outbox THEN
             EXISTS (SELECT FROM event_log AS l WHERE l.aggregate_id = aggregate AND l.aggregate_version = version AND l.aggregate_type = type
                       AND l.topic = ${topic})
           ELSE false END AS "hasOther"
    FROM found ORDER BY position`)
  /** The ids of lost events, by their aggregate's version. An aggregate is in one partition: what comes first there was applied. */
  const firsts = new Map<string, string>()
  return rows.map(({ hasOther, isApplied, isErased, isInOutbox, isSame }, index): Standing => {
    if (isSame === false && isErased === true) return "erased"
    if (isSame === false) return "different"
    if (isSame === true || isInOutbox) return "present"
    if (!isApplied) return "unknown"
    const event = events[index]!
    const key = `${event.aggregateVersion} ${aggregateKey(event)}`
    const first = firsts.get(key) ?? event.eventId
    if (hasOther || first !== event.eventId) return "different"
    if (firsts.has(key)) return "present"
    firsts.set(key, event.eventId)
    return "lost"
  })
})
