/**
 * The statement that ends runs. It checks the fencing token: a worker whose task went to another one meanwhile changes nothing, and the writes
 * that it would have committed with the end are rolled back.
 */
import type { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import { isoTime } from "../platform/IsoTime.ts"
import { Transaction } from "../platform/Transaction.ts"
import type { TaskId } from "./TaskType.ts"

/** How a run ended. */
export interface Ending {
  readonly taskId: TaskId
  /** Of the claim. */
  readonly token: number
  /** `released`: given back as it was, and not counted. A task that is to be cancelled becomes so unless this run has completed it. */
  readonly outcome: "completed" | "failed" | "dead" | "cancelled" | "released"
  /** Of a failed one: the wait until the next run. */
  readonly delayMillis?: number
  /** Why it failed; goes into the history. */
  readonly error?: string
}

/** The run's task belongs to another worker, or is finished. Nothing was written. */
export class LeaseLost extends Schema.TaggedError<LeaseLost>()("LeaseLost", { taskId: Schema.String }) {
  override get message() {
    return `task ${this.taskId} is no longer this worker's`
  }
}

/** Failures that a task's history keeps: those of all runs, and some of the runs before an operator started the task anew. */
export const historyLimit = 20

export class TaskFinish extends Context.Service<
  TaskFinish,
  {
    /** Ends runs, in one statement. Returns the tasks whose runs still were this worker's. */
    readonly finish: (endings: ReadonlyArray<Ending>) => Effect.Effect<ReadonlyArray<TaskId>>
    /** Completes one task together with `writes`, on the caller's database: both commit, or neither does. */
    readonly complete: <E, R>(
      ending: Ending,
      writes: Effect.Effect<unknown, E, R>
    ) => Effect.Effect<void, Exclude<E | LeaseLost, SqlError.SqlError>, Exclude<R, Transaction> | PgClient.PgClient>
  }
>()("paid-once/tasks/TaskFinish") {
  static readonly layer: Layer.Layer<TaskFinish, never, SqlClient.SqlClient> = Layer.effect(
    TaskFinish,
    Effect.gen(function* () {
      const client = yield* SqlClient.SqlClient

      // The delays are sent as text: the client infers an array's type from its first value, and whole and fractional numbers differ.
      const finish = (sql: Statement.Constructor, endings: ReadonlyArray<Ending>) => {
        const state = sql`CASE WHEN t.cancel_requested AND ended.outcome <> 'completed' THEN 'cancelled'
          WHEN ended.outcome <> 'released' THEN ended.outcome
          WHEN t.attempts > 1 THEN 'failed' ELSE 'pending' END`
        // oxlint-disable-next-line paid-once/decoded-rows -- the end of every run
        return sql<{ readonly taskId: TaskId }>`
          UPDATE outbox_tasks AS t
          SET state = ${state},
              finished_at = CASE WHEN ${state} IN ('completed', 'dead', 'cancelled') THEN clock.now END,
              attempts = CASE WHEN ended.outcome = 'released' THEN t.attempts - 1 ELSE t.attempts END,
              execute_at = CASE WHEN ended.delay_millis < 0 THEN t.execute_at
                                ELSE clock.now + ended.delay_millis * interval '1 millisecond' END,
              lease_until = NULL, leased_by = NULL, cancel_requested = false,
              last_error = coalesce(nullif(ended.error, ''), t.last_error),
              history = CASE WHEN ended.error = '' THEN t.history
                             ELSE append_bounded(t.history, jsonb_build_object(
                               'attempt', t.attempts, 'at', ${sql.literal(isoTime("clock.now"))}, 'error', ended.error), ${historyLimit}) END
          FROM (SELECT clock_now() AS now) AS clock,
               unnest(${endings.map(({ taskId }) => taskId)}::uuid[], ${endings.map(({ token }) => token)}::int4[],
                      ${endings.map(({ outcome }) => outcome)}::text[], ${endings.map(({ delayMillis }) => String(delayMillis ?? -1))}::text[]::float8[],
                      ${endings.map(({ error }) => error ?? "")}::text[]) AS ended(task_id, token, outcome, delay_millis, error)
          -- Exactly the running tasks have a lease (the table's CHECK). A condition on the state would make the planner read the index of all
          -- running tasks.
          WHERE t.task_id = ended.task_id AND t.token = ended.token AND t.lease_until IS NOT NULL
          RETURNING t.task_id::text AS "taskId"`
      }

      const end = Effect.fnUntraced(function* (ending: Ending) {
        const { sql } = yield* Transaction
        const ended = yield* Effect.orDie(finish(sql, [ending]))
        if (ended.length === 0) return yield* new LeaseLost({ taskId: ending.taskId })
      })

      return TaskFinish.of({
        finish: Effect.fnUntraced(function* (endings) {
          if (endings.length === 0) return []
          return (yield* Effect.orDie(finish(client, endings))).map(({ taskId }) => taskId)
        }),
        // The ending first, because it locks the row to the commit: the task stays this worker's while the writes run.
        complete: (ending, writes) => Transaction.run(Effect.andThen(end(ending), writes))
      })
    })
  )
}
