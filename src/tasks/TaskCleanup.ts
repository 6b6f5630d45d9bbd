/**
 * Deletes tasks that were completed or cancelled long ago, in chunks. Dead tasks stay: they wait for an operator. A task's idempotency key goes
 * with it, and can be used for a new task from then on.
 */
import { Effect, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import * as Retention from "../platform/Retention.ts"
import * as Rows from "../platform/Rows.ts"

/** Rows that one statement deletes: it takes some milliseconds, and skips rows that somebody else has locked. */
const chunkSize = 1_000

const decodeChunk = Rows.one(Schema.Struct({ count: Schema.Int, last: Schema.NullOr(Schema.String) }))
const decodeCount = Rows.one(Schema.Struct({ count: Schema.Finite }))

/** Deletes tasks that ended more than `retentionDays` ago, chunk by chunk; 0 days keeps them. Returns the number of deleted tasks. */
export const deleteExpired: (retentionDays: number) => Effect.Effect<number, SqlError.SqlError, SqlClient.SqlClient> =
  Effect.fn("TaskCleanup.deleteExpired")(function* (retentionDays: number) {
    if (retentionDays === 0) return 0
    const sql = yield* SqlClient.SqlClient
    const cutoff = yield* Retention.forget("outbox_tasks", retentionDays)
    // Each chunk begins where the last one ended: the index still has the entries of deleted rows, until vacuum removes them.
    let from = "-infinity"
    for (let total = 0; ;) {
      const chunk = yield* decodeChunk(sql`
        WITH expired AS (
          SELECT task_id, finished_at FROM outbox_tasks
          WHERE state IN ('completed', 'cancelled') AND finished_at >= ${from}::timestamptz AND finished_at < ${cutoff}::timestamptz
          ORDER BY finished_at LIMIT ${chunkSize} FOR UPDATE OF outbox_tasks SKIP LOCKED
        ), gone AS (
          DELETE FROM outbox_tasks WHERE task_id = ANY (ARRAY(SELECT task_id FROM expired)) RETURNING finished_at
        )
        SELECT count(*)::int4 AS count, max(finished_at)::text AS last FROM gone`)
      total += chunk.count
      if (chunk.count < chunkSize || chunk.last === null) return total
      from = chunk.last
    }
  })

/** The number of tasks that {@link deleteExpired} would delete. */
export const countExpired = Effect.fn("TaskCleanup.countExpired")(function* (retentionDays: number) {
  const sql = yield* SqlClient.SqlClient
  if (retentionDays === 0) return 0
  const cutoff = yield* Retention.forget("outbox_tasks", retentionDays, { dryRun: true })
  const { count } = yield* decodeCount(sql`
    SELECT count(*)::float8 AS count FROM outbox_tasks
    WHERE state IN ('completed', 'cancelled') AND finished_at < ${cutoff}::timestamptz`)
  return count
})
