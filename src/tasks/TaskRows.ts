/** Statements on a single task that does not run: for `Tasks`, and for the operator. */
import { Effect, Schema } from "effect"
import { isoTime } from "../platform/IsoTime.ts"
import * as OperatorAudit from "../platform/OperatorAudit.ts"
import * as Rows from "../platform/Rows.ts"
import { Transaction } from "../platform/Transaction.ts"
import { TaskId, TaskState } from "./TaskType.ts"

/** A task without its payload, which may hold personal data. Times are ISO 8601 in UTC. */
export const TaskView = Schema.Struct({
  taskId: TaskId,
  type: Schema.String,
  state: TaskState,
  /** Runs that have begun. */
  attempts: Schema.Int,
  priority: Schema.Int,
  enqueuedAt: Schema.String,
  /** It is not run before this time. */
  executeAt: Schema.String,
  finishedAt: Schema.NullOr(Schema.String),
  cancelRequested: Schema.Boolean,
  lastError: Schema.NullOr(Schema.String),
  /** The last failures. */
  history: Schema.Array(Schema.Struct({ attempt: Schema.Int, at: Schema.String, error: Schema.String }))
}).annotate({ identifier: "Task" })
export type TaskView = typeof TaskView.Type

/** The columns of a {@link TaskView}. */
export const viewColumns = `task_id::text AS "taskId", task_type AS type, state, attempts, priority, ${isoTime("enqueued_at")} AS "enqueuedAt",
  ${isoTime("execute_at")} AS "executeAt", ${isoTime("finished_at")} AS "finishedAt", cancel_requested AS "cancelRequested",
  last_error AS "lastError", history`

/** A task's row, which is locked until the transaction ends. */
const LockedTask = Schema.Struct({
  typeName: Schema.String,
  state: TaskState,
  attempts: Schema.Int,
  /** It has an ordering key. */
  keyed: Schema.Boolean,
  cancelRequested: Schema.Boolean,
  /** It waits, and nothing but a free worker is missing. */
  isDue: Schema.Boolean
})
export type LockedTask = typeof LockedTask.Type
const decodeLocked = Rows.first(LockedTask)

export const lock = Effect.fnUntraced(function* (taskId: TaskId) {
  const { sql } = yield* Transaction
  return yield* decodeLocked(sql`
    SELECT task_type AS "typeName", state, attempts, ordering_key IS NOT NULL AS keyed, cancel_requested AS "cancelRequested",
           state IN ('pending', 'failed') AND execute_at <= clock_now() AS "isDue"
    FROM outbox_tasks WHERE task_id = ${taskId}::uuid FOR UPDATE`)
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

/** Makes a task due now; a finished one starts anew with its first attempt. The caller holds its lock. */
export const revive = Effect.fnUntraced(function* (taskId: TaskId) {
  const { sql } = yield* Transaction
  yield* sql`
    UPDATE outbox_tasks
    SET state = CASE WHEN state = 'failed' THEN state ELSE 'pending' END, attempts = CASE WHEN state = 'failed' THEN attempts ELSE 0 END,
        execute_at = clock_now(), finished_at = NULL, cancel_requested = false
    WHERE task_id = ${taskId}::uuid`
}, Effect.orDie)

/** Records an operator's action on a task. */
export const audit = ({
  before: { attempts, state },
  taskId,
  ...entry
}: OperatorAudit.Operator & {
  readonly action: "cancel" | "retry"
  readonly taskId: TaskId
  readonly before: LockedTask
  readonly after: Readonly<Record<string, unknown>>
}) =>
  Effect.gen(function* () {
    const { afterCommit } = yield* Transaction
    yield* OperatorAudit.record({ ...entry, subject: "task", subjectId: taskId, before: { state, attempts } })
    yield* afterCommit(OperatorAudit.log(entry, `${entry.action} of task ${taskId}`))
  }).pipe(Effect.orDie)
