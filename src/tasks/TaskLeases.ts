/** Leases: renewed while their tasks run, and taken back from workers that are gone. */
import { Context, Effect, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import type { Ending } from "./TaskFinish.ts"
import { historyLimit } from "./TaskFinish.ts"
import { isoTime } from "./TaskRows.ts"
import { TaskSettings } from "./TaskSettings.ts"
import type { TaskId, TaskState } from "./TaskType.ts"

/** What a task waits at most beyond its delay, and below it: a fifth, so that what failed together comes back one after the other. */
export const jitter = 0.2

/** Leases taken back in one statement; more come with the next one. */
const sweepLimit = 1_000

/** The task of a lease that was taken back, and what became of it. */
export interface Recovered {
  readonly typeName: string
  readonly state: TaskState
}

export class TaskLeases extends Context.Service<
  TaskLeases,
  {
    /**
     * Renews the leases of these runs, in one statement. Those that it does not return are lost: their tasks belong to somebody
     * else by now, or are finished.
     */
    readonly renew: (
      runs: ReadonlyArray<Pick<Ending, "taskId" | "token">>
    ) => Effect.Effect<ReadonlyArray<{ readonly taskId: TaskId; readonly cancelRequested: boolean }>>
    /**
     * Takes expired leases back: the runs have failed, as a run does whose worker died. By the schedule of its type (waits in milliseconds) a
     * task waits for its next run or is dead; one that was to be cancelled is. Types that are not named are left to who handles them.
     */
    readonly recover: (schedules: ReadonlyMap<string, ReadonlyArray<number>>) => Effect.Effect<ReadonlyArray<Recovered>>
  }
>()("paid-once/tasks/TaskLeases") {
  static readonly layer: Layer.Layer<TaskLeases, never, SqlClient.SqlClient> = Layer.effect(
    TaskLeases,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { leaseMillis } = yield* TaskSettings

      return TaskLeases.of({
        renew: Effect.fnUntraced(function* (runs) {
          if (runs.length === 0) return []
          return yield* sql<{ readonly taskId: TaskId; readonly cancelRequested: boolean }>`
            UPDATE outbox_tasks AS t SET lease_until = clock_now() + ${leaseMillis}::float8 * interval '1 millisecond'
            FROM unnest(${runs.map(({ taskId }) => taskId)}::uuid[], ${runs.map(({ token }) => token)}::int4[]) AS run(task_id, token)
            WHERE t.task_id = run.task_id AND t.token = run.token AND t.lease_until IS NOT NULL
            RETURNING t.task_id::text AS "taskId", t.cancel_requested AS "cancelRequested"`
        }, Effect.orDie),

        recover: Effect.fnUntraced(function* (schedules) {
          const random = yield* Random.next
          return yield* sql<Recovered>`
            WITH expired AS (
              SELECT t.task_id, clock.now, format('the worker %s was lost: its lease ran out', t.leased_by) AS error,
                     -- Null behind the last wait. Multiples of the golden ratio spread any number of tasks evenly over the jitter.
                     (${JSON.stringify(Object.fromEntries(schedules))}::text::jsonb -> t.task_type ->> (t.attempts - 1))::float8
                       * (1 + ${jitter}::float8 * (2 * mod(${random}::float8::numeric + t.seq * 0.618033988749895, 1)::float8 - 1)) AS delay_millis
              FROM outbox_tasks AS t CROSS JOIN (SELECT clock_now() AS now) AS clock
              WHERE t.state = 'processing' AND t.lease_until <= clock.now AND t.task_type = ANY (${[...schedules.keys()]}::text[])
              ORDER BY t.lease_until LIMIT ${sweepLimit}
              -- A run that is being finished right now is not lost.
              FOR UPDATE OF t SKIP LOCKED
            )
            UPDATE outbox_tasks AS t
            SET state = CASE WHEN t.cancel_requested THEN 'cancelled' WHEN expired.delay_millis IS NULL THEN 'dead' ELSE 'failed' END,
                finished_at = CASE WHEN t.cancel_requested OR expired.delay_millis IS NULL THEN expired.now END,
                execute_at = coalesce(expired.now + expired.delay_millis * interval '1 millisecond', t.execute_at),
                lease_until = NULL, leased_by = NULL, cancel_requested = false, last_error = expired.error,
                history = append_bounded(t.history, jsonb_build_object(
                  'attempt', t.attempts, 'at', ${sql.literal(isoTime("expired.now"))}, 'error', expired.error), ${historyLimit})
            FROM expired WHERE t.task_id = expired.task_id
            RETURNING t.task_type AS "typeName", t.state`
        }, Effect.orDie)
      })
    })
  )
}
