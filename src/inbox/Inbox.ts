/**
 * The inbox: which events a consumer has applied. The mark commits together with the effect, so each event has its effect once.
 */
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { RetentionSettings } from "../platform/Retention.ts"
import { Transaction } from "../platform/Transaction.ts"

export class Inbox extends Context.Service<
  Inbox,
  {
    /**
     * Marks the events as applied by the consumer in the surrounding transaction, and returns those for which this is the first
     * time. Two transactions that mark the same event follow one another: the second finds it marked.
     */
    readonly markFirst: (
      consumer: string,
      eventIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlySet<string>, never, Transaction>
    /**
     * Which of an aggregate's events have been applied, as `consumer eventId`. `events` holds all that are known of the aggregate: a skip is
     * recorded under the event that it went on with.
     *
     * Retention drops marks. An event whose mark may be gone counts as applied if the consumer's cursor has passed its version, except for
     * three ways to pass it without an effect, each of which leaves a row for good: the event was discarded at the inbox, an operator skipped its
     * version, or it is a dead letter of the outbox.
     */
    readonly applied: (
      consumers: ReadonlyArray<string>,
      aggregateId: string,
      events: ReadonlyArray<{ readonly eventId: string; readonly version: number }>
    ) => Effect.Effect<ReadonlySet<string>>
  }
>()("paid-once/inbox/Inbox") {
  static readonly layer: Layer.Layer<Inbox, never, SqlClient.SqlClient> = Layer.effect(
    Inbox,
    Effect.zipWith(SqlClient.SqlClient, RetentionSettings, (client, { inboxDays }) =>
      Inbox.of({
        markFirst: Effect.fnUntraced(function* (consumer, eventIds) {
          const { sql } = yield* Transaction
          // Sorted, so that two transactions that mark the same events take their locks in one order and can't deadlock.
          const rows = yield* sql<{ readonly event_id: string }>`
            INSERT INTO processed_events (consumer_name, event_id, processed_at)
            SELECT ${consumer}, event_id, clock_now() FROM unnest(${[...eventIds].toSorted()}::uuid[]) AS event_id
            ON CONFLICT DO NOTHING
            RETURNING event_id::text AS event_id`
          return new Set(rows.map((row) => row.event_id))
        }, Effect.orDie),
        applied: Effect.fn("Inbox.applied")(function* (consumers, aggregateId, events) {
          const ids = events.map(({ eventId }) => eventId)
          const rows = yield* client<{ readonly pair: string }>`
            SELECT consumer_name || ' ' || event_id::text AS pair FROM processed_events
            WHERE event_id = ANY(${ids}::uuid[]) AND consumer_name = ANY(${[...consumers]}::text[])
            UNION
            SELECT c.consumer_name || ' ' || e.id::text
            FROM unnest(${ids}::uuid[], ${events.map(({ version }) => version)}::int4[]) AS e(id, version)
            JOIN consumer_cursors AS c ON c.version >= e.version
            WHERE c.consumer_name = ANY(${[...consumers]}::text[]) AND c.aggregate_id = ${aggregateId}
              AND ${inboxDays}::int4 > 0 AND uuid_v7_time(e.id) < clock_now() - ${inboxDays}::int4 * interval '24 hours'
              AND NOT EXISTS (SELECT FROM inbox_dead_letters AS d
                              WHERE d.consumer_name = c.consumer_name AND d.event_id = e.id::text)
              AND NOT EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.event_id = e.id)
              AND NOT EXISTS (
                SELECT FROM operator_audit AS a
                WHERE a.subject = 'inbox event' AND a.action = 'skip'
                  -- An ARRAY is looked up in the index. Without it Postgres would read every skip there ever was.
                  AND a.subject_id = ANY (ARRAY(SELECT c.consumer_name || ' ' || id::text FROM unnest(${ids}::uuid[]) AS id))
                  AND (a.before ->> 'version')::int4 < e.version AND (a.after ->> 'version')::int4 >= e.version)`
          return new Set(rows.map((row) => row.pair))
        }, Effect.orDie)
      })
    )
  )
}
