/**
 * The inbox: which events a consumer has applied. An event's mark commits in the transaction of its effect, so each event has its effect
 * once.
 */
import { Context, Effect, Layer } from "effect"
import { Transaction } from "../platform/Transaction.ts"

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
  }
>()("paid-once/inbox/Inbox") {
  static readonly layer: Layer.Layer<Inbox> = Layer.succeed(Inbox, {
    markFirst: Effect.fnUntraced(function* (consumer: string, eventIds: ReadonlyArray<string>) {
      const { sql } = yield* Transaction
      // Sorted, so that two transactions that mark the same events take their locks in one order and can't deadlock.
      // oxlint-disable-next-line paid-once/decoded-rows -- once for each slice, a row for each event
      const rows = yield* sql<{ readonly event_id: string }>`
        INSERT INTO processed_events (consumer_name, event_id, processed_at)
        SELECT ${consumer}, event_id, clock_now() FROM unnest(${[...eventIds].toSorted()}::uuid[]) AS event_id
        ON CONFLICT DO NOTHING
        RETURNING event_id::text AS event_id`
      return new Set(rows.map((row) => row.event_id))
    }, Effect.orDie)
  })
}
