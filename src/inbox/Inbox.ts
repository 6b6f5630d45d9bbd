/**
 * The inbox: which events a consumer has applied. An event's mark commits in the transaction of its effect, so each event has its effect
 * once.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { RetentionSettings } from "../platform/Retention.ts"
import * as Rows from "../platform/Rows.ts"
import { Transaction } from "../platform/Transaction.ts"

const pairs = Rows.all(Schema.Struct({ pair: Schema.String }))

export class Inbox extends Context.Service<
  Inbox,
  {
    /**
     * Marks the events as applied by the consumer in the surrounding transaction, and returns those that had no mark before. Of two
     * transactions that mark the same event, the second one waits for the first, and finds the mark if that one commits.
     */
    readonly markFirst: (
      consumer: string,
      eventIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlySet<string>, never, Transaction>
    /**
     * Which of an aggregate's events have been applied, as `consumer eventId`. `events` are all that are known of the aggregate: the record of a
     * skip names the event that the consumer went on with.
     *
     * Retention drops marks. An event whose mark may be gone counts as applied if the consumer's cursor has passed its version. A cursor
     * passes a version without an effect if the event was discarded at the inbox, if an operator skipped its version, or if it is a dead
     * letter of the outbox. Each of these leaves a row for good.
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
          // oxlint-disable-next-line paid-once/decoded-rows -- once for each slice, a row for each event
          const rows = yield* sql<{ readonly event_id: string }>`
            INSERT INTO processed_events (consumer_name, event_id, processed_at)
            SELECT ${consumer}, event_id, clock_now() FROM unnest(${[...eventIds].toSorted()}::uuid[]) AS event_id
            ON CONFLICT DO NOTHING
            RETURNING event_id::text AS event_id`
          return new Set(rows.map((row) => row.event_id))
        }, Effect.orDie),
        applied: Effect.fn("Inbox.applied")(function* (consumers, aggregateId, events) {
          const ids = events.map(({ eventId }) => eventId)
          const rows = yield* pairs(client`
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
                  AND (a.before ->> 'version')::int4 < e.version AND (a.after ->> 'version')::int4 >= e.version)`)
          return new Set(rows.map((row) => row.pair))
        }, Effect.orDie)
      })
    )
  )
}
