/** Compares records of the topic with what the database knows: after a restore from a backup, the topic is ahead. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { laneOf } from "../../outbox/Lane.ts"
import * as Rows from "../../platform/Rows.ts"
import type { OrderRecord } from "./TopicRecords.ts"

/**
 * - `known`: the event is in the queue, parked, a dead letter or in the archive; or it is older than what the archive keeps.
 * - `missing`: its order is behind it, or is not there: the database has lost it.
 * - `collision`: its order's version was used anew, for another event.
 */
export type Standing = "known" | "missing" | "collision"

const allStandings = Rows.all(
  Schema.Struct({
    isKnown: Schema.Boolean,
    version: Schema.NullOr(Schema.Int),
    hasOther: Schema.Boolean
  })
)

/** The standing of each record, in their order. One statement, so one snapshot: an event is in the queue or in the archive. */
export const standingsOf = Effect.fnUntraced(function* (records: ReadonlyArray<OrderRecord>) {
  if (records.length === 0) return []
  const sql = yield* SqlClient.SqlClient
  const envelopes = records.map(({ envelope }) => envelope)
  const rows = yield* allStandings(sql`
    SELECT EXISTS (SELECT FROM event_log AS l WHERE l.event_id = r.id)
             OR EXISTS (SELECT FROM outbox_events AS q WHERE q.lane = r.lane AND q.event_id = r.id)
             OR EXISTS (SELECT FROM outbox_parked AS p WHERE p.event_id = r.id)
             OR EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.event_id = r.id) AS "isKnown",
           (SELECT o.version FROM orders AS o WHERE o.id = r.aggregate::uuid) AS version,
           EXISTS (SELECT FROM event_log AS l WHERE l.aggregate_id = r.aggregate AND l.aggregate_version = r.version AND l.event_id <> r.id)
             OR EXISTS (SELECT FROM outbox_events AS q WHERE q.lane = r.lane AND q.aggregate_id = r.aggregate
                          AND q.aggregate_version = r.version AND q.event_id <> r.id)
             OR EXISTS (SELECT FROM outbox_parked AS p WHERE p.aggregate_type = r.type AND p.aggregate_id = r.aggregate
                          AND p.aggregate_version = r.version AND p.event_id <> r.id)
             OR EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.aggregate_id = r.aggregate
                          AND d.aggregate_version = r.version AND d.event_id <> r.id) AS "hasOther"
    FROM unnest(${envelopes.map(({ eventId }) => eventId)}::uuid[], ${envelopes.map(({ aggregateId }) => laneOf(aggregateId))}::int2[],
                ${envelopes.map(({ aggregateId }) => aggregateId)}::text[], ${envelopes.map(({ aggregateVersion }) => aggregateVersion)}::int4[],
                ${envelopes.map(({ aggregateType }) => aggregateType)}::text[])
           WITH ORDINALITY AS r(id, lane, aggregate, version, type, position)
    ORDER BY r.position`)
  return rows.map(({ hasOther, isKnown, version }, index): Standing => {
    if (isKnown) return "known"
    if (hasOther) return "collision"
    return envelopes[index]!.aggregateVersion > (version ?? 0) ? "missing" : "known"
  })
})
