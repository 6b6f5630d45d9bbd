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
     * Of these events of an aggregate, the pairs of consumer and event that have been applied, as `consumer eventId`: those that are marked,
     * and those whose marks retention may have dropped and which the consumer has passed, unless they were given up.
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
          const rows = yield* client<{ readonly pair: string }>`
            SELECT consumer_name || ' ' || event_id::text AS pair FROM processed_events
            WHERE event_id = ANY(${events.map(({ eventId }) => eventId)}::uuid[]) AND consumer_name = ANY(${[...consumers]}::text[])
            UNION
            SELECT c.consumer_name || ' ' || e.id::text
            FROM unnest(${events.map(({ eventId }) => eventId)}::uuid[], ${events.map(({ version }) => version)}::int4[]) AS e(id, version)
            JOIN consumer_cursors AS c ON c.version >= e.version
            WHERE c.consumer_name = ANY(${[...consumers]}::text[]) AND c.aggregate_id = ${aggregateId}
              AND ${inboxDays}::int4 > 0 AND uuid_v7_time(e.id) < clock_now() - ${inboxDays}::int4 * interval '1 day'
              AND NOT EXISTS (SELECT FROM inbox_dead_letters AS d
                              WHERE d.consumer_name = c.consumer_name AND d.event_id = e.id::text)`
          return new Set(rows.map((row) => row.pair))
        }, Effect.orDie)
      })
    )
  )
}
