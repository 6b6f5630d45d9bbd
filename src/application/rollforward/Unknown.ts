/** Compares records of the topic with what the database knows: after a restore from a backup, the topic is ahead. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { laneOf } from "../../outbox/Lane.ts"
import { keptSince } from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import type { OrderRecord } from "./TopicRecords.ts"

/**
 * - `known`: the outbox or the archive has the event, a consumer has applied it, or it was left out (LeftOut.ts).
 * - `missing`: its order is behind it, or is not there: the database has lost it.
 * - `collision`: its order's version was used for another event. The archive has that one, or consumers have passed the version without this one.
 * - `forgotten`: its order is not behind it, and whatever would tell has passed its retention.
 */
export type Standing = "known" | "missing" | "collision" | "forgotten"

/** The standing of an event, and the version of its order; 0 if the order is not there. */
export interface Compared {
  readonly standing: Standing
  readonly version: number
}

const allCompared = Rows.all(
  Schema.Struct({ standing: Schema.Literals(["known", "missing", "collision", "forgotten"]), version: Schema.Int })
)

/**
 * The standing of each record, in their order, by the marks and cursors of these consumers among others. It is one statement and one snapshot: an event
 * is in the queue or in the archive.
 *
 * An event that a consumer has still to read has neither mark nor cursor: it counts as known, for it is no sign of anything.
 */
export const standingsOf = Effect.fnUntraced(function* (
  records: ReadonlyArray<OrderRecord>,
  consumers: ReadonlyArray<string>
) {
  if (records.length === 0) return []
  const sql = yield* SqlClient.SqlClient
  const events = records.map(({ stored }) => stored)
  return yield* allCompared(sql`
    SELECT version, CASE
             WHEN is_known THEN 'known'
             WHEN has_other THEN 'collision'
             WHEN r.event_version > version THEN 'missing'
             WHEN EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name = ANY(${[...consumers]}::text[]) AND m.event_id = r.id) THEN 'known'
             WHEN NOT EXISTS (SELECT FROM consumer_cursors AS c WHERE c.consumer_name = ANY(${[...consumers]}::text[])
                                AND c.aggregate_id = r.aggregate AND c.aggregate_type = r.type AND c.version >= r.event_version) THEN 'known'
             WHEN uuid_v7_time(r.id) >= ${sql.literal(keptSince("processed_events"))} THEN 'collision'
             ELSE 'forgotten' END AS standing
    FROM (
      SELECT r.*, coalesce((SELECT o.version FROM orders AS o WHERE o.id = r.aggregate::uuid), 0) AS version,
             EXISTS (SELECT FROM event_log AS l WHERE l.event_id = r.id)
               OR EXISTS (SELECT FROM outbox_events AS q WHERE q.lane = r.lane AND q.event_id = r.id)
               OR EXISTS (SELECT FROM outbox_parked AS p WHERE p.event_id = r.id)
               OR EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.event_id = r.id)
               OR EXISTS (SELECT FROM left_out_events AS e WHERE e.event_id = r.id) AS is_known,
             EXISTS (SELECT FROM event_log AS l WHERE l.aggregate_id = r.aggregate AND l.aggregate_version = r.event_version AND l.event_id <> r.id)
               OR EXISTS (SELECT FROM outbox_events AS q WHERE q.lane = r.lane AND q.aggregate_id = r.aggregate
                            AND q.aggregate_version = r.event_version AND q.event_id <> r.id)
               OR EXISTS (SELECT FROM outbox_parked AS p WHERE p.aggregate_type = r.type AND p.aggregate_id = r.aggregate
                            AND p.aggregate_version = r.event_version AND p.event_id <> r.id)
               OR EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.aggregate_id = r.aggregate
                            AND d.aggregate_version = r.event_version AND d.event_id <> r.id) AS has_other
      FROM unnest(${events.map(({ eventId }) => eventId)}::uuid[], ${events.map(({ aggregateId }) => laneOf(aggregateId))}::int2[],
                  ${events.map(({ aggregateId }) => aggregateId)}::text[], ${events.map(({ aggregateVersion }) => aggregateVersion)}::int4[],
                  ${events.map(({ aggregateType }) => aggregateType)}::text[])
             WITH ORDINALITY AS r(id, lane, aggregate, event_version, type, position)) AS r
    ORDER BY r.position`)
})
