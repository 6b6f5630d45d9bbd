/** Leases of running tasks: their worker renews them, and another one takes them back when it has not. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Backoff from "../platform/Backoff.ts"
import { isoTime } from "../platform/IsoTime.ts"
import * as Rows from "../platform/Rows.ts"
import type { Ending } from "./TaskFinish.ts"
import { historyLimit } from "./TaskFinish.ts"
import { TaskSettings } from "./TaskSettings.ts"
import { TaskId, TaskState } from "./TaskType.ts"

/** Leases taken back in one statement; more come with the next one. */
const sweepLimit = 1_000

/** A run whose lease has expired. */
const Expired = Schema.Struct({
  taskId: TaskId,
  token: Schema.Int,
  typeName: Schema.String,
  attempts: Schema.Int
})
const decodeExpired = Rows.all(Expired)

/** The task of a lease that was taken back, and its new state. */
const Recovered = Schema.Struct({ typeName: Schema.String, state: TaskState })
export type Recovered = typeof Recovered.Type
const decodeRecovered = Rows.all(Recovered)

export class TaskLeases extends Context.Service<
  TaskLeases,
  {
    /**
     * Renews the leases of these runs, in one statement. A run that it does not return is lost: its task belongs to another worker, or is
     * finished.
     */
    readonly renew: (
      runs: ReadonlyArray<Pick<Ending, "taskId" | "token">>
    ) => Effect.Effect<ReadonlyArray<{ readonly taskId: TaskId; readonly cancelRequested: boolean }>>
    /**
     * Takes expired leases back, at most a thousand: these runs have failed. Each task waits for its next run by the delays of its type, in
     * milliseconds, or is dead behind the last delay; a task that was to be cancelled is cancelled. Types without delays here are left to the
     * processes that handle them.
     */
    readonly recover: (
      delaysMillis: ReadonlyMap<string, ReadonlyArray<number>>
    ) => Effect.Effect<ReadonlyArray<Recovered>>
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
          // oxlint-disable-next-line paid-once/decoded-rows -- every heartbeat of every running task
          return yield* sql<{ readonly taskId: TaskId; readonly cancelRequested: boolean }>`
            UPDATE outbox_tasks AS t SET lease_until = clock_now() + ${leaseMillis}::float8 * interval '1 millisecond'
            FROM unnest(${runs.map(({ taskId }) => taskId)}::uuid[], ${runs.map(({ token }) => token)}::int4[]) AS run(task_id, token)
            WHERE t.task_id = run.task_id AND t.token = run.token AND t.lease_until IS NOT NULL
            RETURNING t.task_id::text AS "taskId", t.cancel_requested AS "cancelRequested"`
        }, Effect.orDie),

        recover: Effect.fnUntraced(function* (delaysMillis) {
          const expired = yield* decodeExpired(sql`
            SELECT t.task_id::text AS "taskId", t.token, t.task_type AS "typeName", t.attempts
            FROM outbox_tasks AS t CROSS JOIN (SELECT clock_now() AS now) AS clock
            WHERE t.state = 'processing' AND t.lease_until <= clock.now AND t.task_type = ANY (${[...delaysMillis.keys()]}::text[])
            ORDER BY t.lease_until LIMIT ${sweepLimit}`)
          if (expired.length === 0) return []
          const delays = yield* Effect.forEach(expired, ({ attempts, typeName }) =>
            Backoff.millisAfterOrEnd(Backoff.staircase(delaysMillis.get(typeName) ?? []), attempts)
          )
          return yield* decodeRecovered(sql`
            WITH expired AS (
              SELECT t.task_id, clock.now, format('the worker %s was lost: its lease ran out', t.leased_by) AS error, seen.delay_millis
              FROM unnest(${expired.map(({ taskId }) => taskId)}::uuid[], ${expired.map(({ token }) => token)}::int4[],
                          -- As text: the client takes an array's type from its values, and whole and broken numbers have two.
                          ${delays.map((millis) => (millis === undefined ? "" : String(millis)))}::text[])
                     AS read(task_id, token, delay)
              CROSS JOIN LATERAL (SELECT nullif(read.delay, '')::float8 AS delay_millis) AS seen
              CROSS JOIN (SELECT clock_now() AS now) AS clock
              -- The lease may have been renewed, or its run ended, since it was read.
              JOIN outbox_tasks AS t ON t.task_id = read.task_id AND t.token = read.token AND t.lease_until <= clock.now
              -- A row that is locked belongs to a run that is being finished right now.
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
            RETURNING t.task_type AS "typeName", t.state`)
        }, Effect.orDie)
      })
    })
  )
}
