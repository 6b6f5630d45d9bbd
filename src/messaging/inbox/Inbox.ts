/**
 * The inbox: which events a consumer has applied. The mark commits together with the effect, so each event has its effect once.
 */
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Transaction } from "../../platform/database/Transaction.ts"

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
    /** Of these events, the pairs of consumer and event that have been applied, as `consumer eventId`. */
    readonly applied: (
      consumers: ReadonlyArray<string>,
      eventIds: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlySet<string>>
  }
>()("paid-once/messaging/inbox/Inbox") {
  static readonly layer: Layer.Layer<Inbox, never, SqlClient.SqlClient> = Layer.effect(
    Inbox,
    Effect.map(SqlClient.SqlClient, (client) =>
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
        applied: Effect.fn("Inbox.applied")(function* (consumers, eventIds) {
          const rows = yield* client<{ readonly pair: string }>`
            SELECT consumer_name || ' ' || event_id::text AS pair FROM processed_events
            WHERE event_id = ANY(${[...eventIds]}::uuid[]) AND consumer_name = ANY(${[...consumers]}::text[])`
          return new Set(rows.map((row) => row.pair))
        }, Effect.orDie)
      })
    )
  )
}
