/** What is written to a task by hand: by the code that asked for it, and by an operator. */
import { Effect, Schema } from "effect"
import { Transaction } from "../platform/Transaction.ts"
import { TaskId, TaskState } from "./TaskType.ts"

/** A task, as anyone may see it: without its payload, which may hold what is nobody's business. Times are ISO 8601 in UTC. */
export const TaskView = Schema.Struct({
  taskId: TaskId,
  type: Schema.String,
  state: TaskState,
  /** Runs that were begun. */
  attempts: Schema.Int,
  priority: Schema.Int,
  enqueuedAt: Schema.String,
  /** Not to be run before. */
  executeAt: Schema.String,
  finishedAt: Schema.NullOr(Schema.String),
  cancelRequested: Schema.Boolean,
  lastError: Schema.NullOr(Schema.String),
  /** The last failures. */
  history: Schema.Array(Schema.Struct({ attempt: Schema.Int, at: Schema.String, error: Schema.String }))
}).annotate({ identifier: "Task" })
export type TaskView = typeof TaskView.Type

/** How a time is shown. */
export const isoTime = (expression: string) =>
  `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** The columns of a {@link TaskView}. */
export const viewColumns = `task_id::text AS "taskId", task_type AS type, state, attempts, priority, ${isoTime("enqueued_at")} AS "enqueuedAt",
  ${isoTime("execute_at")} AS "executeAt", ${isoTime("finished_at")} AS "finishedAt", cancel_requested AS "cancelRequested",
  last_error AS "lastError", history`

/** A task's row, locked to the end of the transaction. */
export interface LockedTask {
  readonly typeName: string
  readonly state: TaskState
  readonly attempts: number
  readonly keyed: boolean
}

export const lock = Effect.fnUntraced(function* (taskId: TaskId) {
  const { sql } = yield* Transaction
  const [row] = yield* sql<LockedTask>`
    SELECT task_type AS "typeName", state, attempts, ordering_key IS NOT NULL AS keyed
    FROM outbox_tasks WHERE task_id = ${taskId}::uuid FOR UPDATE`
  return row
}, Effect.orDie)

/** Finishes a task that is not running. The caller holds its lock. */
export const finish = Effect.fnUntraced(function* (taskId: TaskId, state: "cancelled") {
  const { sql } = yield* Transaction
  yield* sql`
    UPDATE outbox_tasks SET state = ${state}, finished_at = clock_now(), cancel_requested = false WHERE task_id = ${taskId}::uuid`
}, Effect.orDie)

/** Asks the worker that has the task to stop it. The caller holds its lock. */
export const requestCancel = Effect.fnUntraced(function* (taskId: TaskId) {
  const { sql } = yield* Transaction
  yield* sql`UPDATE outbox_tasks SET cancel_requested = true WHERE task_id = ${taskId}::uuid`
}, Effect.orDie)

/** Makes a task due now; a finished one starts anew, with all its runs before it. The caller holds its lock. */
export const revive = Effect.fnUntraced(function* (taskId: TaskId) {
  const { sql } = yield* Transaction
  yield* sql`
    UPDATE outbox_tasks
    SET state = CASE WHEN state = 'failed' THEN state ELSE 'pending' END, attempts = CASE WHEN state = 'failed' THEN attempts ELSE 0 END,
        execute_at = clock_now(), finished_at = NULL, cancel_requested = false
    WHERE task_id = ${taskId}::uuid`
}, Effect.orDie)

/** Writes down who did what to a task, and why. */
export const audit = Effect.fnUntraced(function* (entry: {
  readonly actor: string
  readonly reason: string
  readonly action: "cancel" | "retry"
  readonly taskId: TaskId
  readonly before: LockedTask
  readonly after: Readonly<Record<string, unknown>>
}) {
  const { sql } = yield* Transaction
  const { attempts, state } = entry.before
  yield* sql`
    INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
    VALUES (clock_now(), ${entry.actor}, ${entry.action}, ${entry.reason}, 'task', ${entry.taskId},
            ${JSON.stringify({ state, attempts })}::text::jsonb, ${JSON.stringify(entry.after)}::text::jsonb)`
}, Effect.orDie)
