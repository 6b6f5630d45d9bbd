import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type Acknowledged, Queue, QueueSettings } from "../../../src/outbox/Queue.ts"
import type { Mistake } from "./Mistake.ts"

export const deleteThenArchive: Mistake = {
  name: "delete-then-archive",
  what: "Acknowledged events are deleted from the queue, and then written to the archive: two statements, and no transaction around them.",
  why:
    "The event is in the topic by then, so nothing can be lost, and the one statement follows right behind the other. " +
    "But who dies between them leaves an event that the archive will never have: no timeline shows it, and no replay sends it again.",
  rule: "One statement takes an event out of the queue and into the archive.",
  read: "src/outbox/Queue.ts",
  plant: (real) => ({
    queue: Layer.effect(
      Queue,
      Effect.gen(function* () {
        const queue = yield* Queue
        const sql = yield* SqlClient.SqlClient
        const { archive } = yield* QueueSettings
        const deleteThenInsert = Effect.fnUntraced(function* ({ events, lane, receipt }: Acknowledged) {
          const seqs = events.map((event) => event.seq)
          const published = yield* sql<{ readonly event: string }>`
            DELETE FROM outbox_events WHERE lane = ${lane}::int2 AND seq = ANY (${seqs}::int8[])
            RETURNING row_to_json(outbox_events)::text AS event`
          yield* sql`
            INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                   occurred_at, trace_id, span_id, data, broker_partition, broker_offset, published_at)
            SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                   occurred_at, trace_id, span_id, data,
                   ${receipt.partition}::int4, ${receipt.baseOffset}::int8 + width_bucket(seq, ${seqs}::int8[]) - 1, clock_now()
            FROM json_populate_recordset(NULL::outbox_events, ${`[${published.map(({ event }) => event).join()}]`}::text::json)`
        })
        return Queue.of({
          ...queue,
          mark: Effect.fnUntraced(function* (runs) {
            if (!archive) return yield* queue.mark(runs)
            for (const run of runs) yield* deleteThenInsert(run)
          }, Effect.orDie)
        })
      })
    ).pipe(Layer.provide(real.queue))
  })
}
