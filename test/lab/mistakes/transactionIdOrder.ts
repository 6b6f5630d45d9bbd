import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Queue, type QueuedEvent } from "../../../src/outbox/Queue.ts"
import { eventColumns } from "../../../src/outbox/EventRows.ts"
import { eachLane } from "./fetching.ts"
import type { Mistake } from "./Mistake.ts"

export const transactionIdOrder: Mistake = {
  name: "transaction-id-order",
  what: "Events are sent in the order of the transactions that wrote them (xmin), waiting for all older transactions to end.",
  why:
    "It repairs the id cursor: no transaction can commit behind the horizon. But a transaction gets its id at its first write, " +
    "and may wait for the order's row afterwards: the one with the older id may write the newer version.",
  rule: "The version, taken under the aggregate's row lock, is the only order there is.",
  read: "src/outbox/Outbox.ts",
  plant: (real) => ({
    batchSize: 1,
    queue: Layer.effect(
      Queue,
      Effect.gen(function* () {
        const queue = yield* Queue
        const sql = yield* SqlClient.SqlClient
        return Queue.of({
          ...queue,
          fetch: eachLane(
            (lane) => sql<QueuedEvent>`
              SELECT ${sql.literal(eventColumns("outbox_events"))} FROM outbox_events
              WHERE lane = ${lane}::int2 AND xmin::text::int8 < coalesce(
                -- pg_snapshot_xmin, but for what runs in the cluster's other databases, and for an autovacuum that may come at any time:
                -- they must not change the story.
                (SELECT min(backend_xid::text::int8) FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend'),
                9223372036854775807)
              ORDER BY xmin::text::int8, seq LIMIT 1`
          )
        })
      })
    ).pipe(Layer.provide(real.queue))
  })
}
