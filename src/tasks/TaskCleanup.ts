/**
 * Takes away what has been completed or cancelled for long, some at a time. Dead tasks stay: they wait for an operator. With a task goes its
 * idempotency key, which then stands for nothing any more.
 */
import { Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"

/** Rows in one statement: some milliseconds, and nobody waits for their locks. */
const chunkSize = 1_000

/** Deletes tasks that ended more than so many days ago, chunk by chunk; 0 days keeps them. Returns how many there were. */
export const deleteExpired: (retentionDays: number) => Effect.Effect<number, SqlError.SqlError, SqlClient.SqlClient> =
  Effect.fn("TaskCleanup.deleteExpired")(function* (retentionDays: number) {
    if (retentionDays === 0) return 0
    const sql = yield* SqlClient.SqlClient
    // A run does not look at the dead entries of its own deletes again, which vacuum may not have removed yet.
    let from = "-infinity"
    for (let total = 0; ;) {
      const [chunk] = yield* sql<{ readonly count: number; readonly last: string | null }>`
        WITH expired AS (
          SELECT task_id, finished_at FROM outbox_tasks, (SELECT clock_now() AS now) AS clock
          WHERE state IN ('completed', 'cancelled') AND finished_at >= ${from}::timestamptz
            AND finished_at < clock.now - make_interval(hours => 24 * ${retentionDays}::int4)
          ORDER BY finished_at LIMIT ${chunkSize} FOR UPDATE OF outbox_tasks SKIP LOCKED
        ), gone AS (
          DELETE FROM outbox_tasks WHERE task_id = ANY (ARRAY(SELECT task_id FROM expired)) RETURNING finished_at
        )
        SELECT count(*)::int4 AS count, max(finished_at)::text AS last FROM gone`
      total += chunk!.count
      if (chunk!.count < chunkSize || chunk!.last === null) return total
      from = chunk!.last
    }
  })

/** How many {@link deleteExpired} would delete. */
export const countExpired = Effect.fn("TaskCleanup.countExpired")(function* (retentionDays: number) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly count: number }>`
    SELECT count(*)::float8 AS count FROM outbox_tasks, (SELECT clock_now() AS now) AS clock
    WHERE ${retentionDays}::int4 > 0 AND state IN ('completed', 'cancelled')
      AND finished_at < clock.now - make_interval(hours => 24 * ${retentionDays}::int4)`
  return row!.count
})
