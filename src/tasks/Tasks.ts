/** Durable tasks beside business data: enqueued in a transaction, run after its commit, and never without it. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { Ids } from "../platform/Ids.ts"
import * as Rows from "../platform/Rows.ts"
import * as Traced from "../platform/Traced.ts"
import * as Tracing from "../platform/Tracing.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type EnqueueOptions, mistakeOf } from "./EnqueueOptions.ts"
import * as TaskRows from "./TaskRows.ts"
import { TaskView, viewColumns } from "./TaskRows.ts"
import { TaskSettings } from "./TaskSettings.ts"
import { TaskId, TaskState, type TaskType } from "./TaskType.ts"
import { TaskWakeup } from "./TaskWakeup.ts"

/** The operator who changes something, and the reason. Both are recorded in the audit. */
export interface Operator {
  readonly actor: string
  readonly reason: string
}

/** No task has this id. */
export class TaskNotFound extends Schema.TaggedError<TaskNotFound>()("TaskNotFound", { taskId: Schema.String }) {
  override get message() {
    return `there is no task ${this.taskId}: it was never enqueued, or cleanup has taken it away`
  }
}

/** The task is not in a state where this can be done. Nothing was changed. */
export class TaskNotPossible extends Schema.TaggedError<TaskNotPossible>()("TaskNotPossible", {
  taskId: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `task ${this.taskId} ${this.reason}`
  }
}

/** The state of a task after an operator's action. `changed` is false if it had that state before. */
export const Handled = Schema.Struct({ taskId: TaskId, state: TaskState, changed: Schema.Boolean })
export type Handled = typeof Handled.Type

/** A task that will not be run again. */
const DeadTask = Schema.Struct({
  taskId: TaskId,
  /** As it is stored. */
  payload: Schema.Unknown,
  idempotencyKey: Schema.NullOr(Schema.String),
  lastError: Schema.NullOr(Schema.String)
})
export type DeadTask = typeof DeadTask.Type
const decodeDead = Rows.all(DeadTask)

const decodeView = Rows.first(TaskView)
const decodeFirst = Rows.first(Schema.Struct({ taskId: TaskId }))
const decodeSettled = Rows.first(Schema.Struct({ typeName: Schema.String, keyed: Schema.Boolean }))
const decodeCancelled = Rows.first(
  Schema.Struct({ typeName: Schema.String, payload: Schema.Unknown, idempotencyKey: Schema.NullOr(Schema.String) })
)
const decodeHastened = Rows.first(Schema.Struct({ typeName: Schema.String }))

/** A task that is being cancelled. */
export interface CancelledTask {
  /** As it is stored. */
  readonly payload: unknown
  readonly idempotencyKey: string | null
  readonly operator: Operator
}

/** See {@link Tasks}. */
export interface TasksService {
  /**
   * Adds a task in the surrounding transaction: it runs if that commits, and does not exist if it rolls back.
   *
   * **Details**
   *
   * If the type has a task with this `idempotencyKey`, finished or not, nothing is added, and the id of that task is returned with `isNew` false.
   * If a concurrent transaction has just added it, this one waits for its end. A payload that the schema refuses, a priority out of bounds and a
   * malformed time are mistakes of the program, and so defects.
   */
  readonly enqueue: <Payload>(
    type: TaskType<Payload>,
    payload: Payload,
    options?: EnqueueOptions
  ) => Effect.Effect<{ readonly taskId: TaskId; readonly isNew: boolean }, never, Transaction>
  /**
   * Completes a task that is no longer needed: one that waits or is dead becomes completed with the surrounding commit. Returns false for a task
   * that is running or finished. A running task is not stopped, so its effects must be harmless.
   */
  readonly settle: (taskId: TaskId) => Effect.Effect<boolean, never, Transaction>
  /** {@link settle} for the task of the type that was enqueued with this key. */
  readonly settleByKey: (
    type: Pick<TaskType<unknown>, "name">,
    idempotencyKey: string
  ) => Effect.Effect<boolean, never, Transaction>
  /**
   * Makes a waiting task due in `delayMillis`, unless it is due sooner anyway: for example when its cause has gone. A task that runs or is finished
   * stays as it is.
   */
  readonly hasten: (taskId: TaskId, delayMillis?: number) => Effect.Effect<void, never, Transaction>
  /** {@link hasten} for the task of the type that was enqueued with this key. */
  readonly hastenByKey: (
    type: Pick<TaskType<unknown>, "name">,
    idempotencyKey: string,
    delayMillis?: number
  ) => Effect.Effect<void, never, Transaction>
  readonly get: (taskId: TaskId) => Effect.Effect<TaskView, TaskNotFound>
  /** Dead tasks of the type, the longest dead first, at most `limit`. */
  readonly dead: (typeName: string, limit: number) => Effect.Effect<ReadonlyArray<DeadTask>>
  /**
   * Cancels a task. A task that waits or is dead is cancelled at once. A running task (state `processing`) is marked, and its worker interrupts it
   * with the next heartbeat, unless it ends before. The effect of {@link onCancel} for its type commits with it. Audited.
   */
  readonly cancel: (taskId: TaskId, operator: Operator) => Effect.Effect<Handled, TaskNotFound | TaskNotPossible>
  /**
   * `effect` runs in each transaction that cancels a task of this type, or marks a running one: for tasks that nobody else would replace. A type
   * has one such effect, and the process that cancels must have it.
   *
   * **Gotchas**
   *
   * It runs before the task's row is locked, so that it locks its own rows first, as the type's other transactions do. The task may be
   * cancelled already. If it is completed, the cancellation fails, and the writes of the effect are rolled back.
   */
  readonly onCancel: (
    type: Pick<TaskType<unknown>, "name">,
    effect: (task: CancelledTask) => Effect.Effect<void, never, Transaction>
  ) => Effect.Effect<void>
  /**
   * Runs a dead or cancelled task anew, with all its attempts; a waiting task becomes due now. Audited. A task that is due, runs or is completed
   * stays as it is, so that a repeated call changes nothing.
   */
  readonly retry: (taskId: TaskId, operator: Operator) => Effect.Effect<Handled, TaskNotFound>
}

export class Tasks extends Context.Service<Tasks, TasksService>()("paid-once/tasks/Tasks") {
  static readonly layer: Layer.Layer<Tasks, never, PgClient.PgClient | Ids | TaskWakeup> = Layer.effect(
    Tasks,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const wakeup = yield* TaskWakeup
      const ids = yield* Ids
      const { pollMillis } = yield* TaskSettings
      const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

      /** Wakes a worker after the commit. A task that becomes due after the next poll needs no wake-up: a worker waits for it. */
      const announce = Effect.fnUntraced(function* (typeName: string, delayMillis: number) {
        const { afterCommit } = yield* Transaction
        if (delayMillis <= pollMillis) yield* afterCommit(wakeup.wake(typeName))
      })

      const enqueue = Traced.fn("Tasks.enqueue")(function* <Payload>(
        type: TaskType<Payload>,
        payload: Payload,
        options: EnqueueOptions = {}
      ) {
        const { sql } = yield* Transaction
        const { delayMillis = 0, executeAt = null, idempotencyKey = null, orderingKey = null, priority = 0 } = options
        const text = JSON.stringify(yield* Effect.orDie(Schema.encodeEffect(type.payload)(payload)))
        const wrong = mistakeOf({ delayMillis, executeAt, priority, length: text.length })
        if (wrong !== undefined) return yield* Effect.die(new Error(`task of type ${type.name}: ${wrong}`))
        const span = yield* Tracing.current
        // oxlint-disable-next-line paid-once/decoded-rows -- part of business transactions
        const [added] = yield* Effect.orDie(sql<{ readonly taskId: TaskId; readonly delayMillis: number }>`
          INSERT INTO outbox_tasks (task_id, task_type, state, payload, priority, ordering_key, idempotency_key, enqueued_at, execute_at,
                                    attempts, token, trace_id, span_id)
          SELECT ${ids.next()}::uuid, ${type.name}::text, 'pending', ${text}::text::json, ${priority}::int2,
                 ${orderingKey}::text, ${idempotencyKey}::text, clock.now,
                 coalesce(${executeAt}::timestamptz, clock.now) + ${delayMillis}::float8 * interval '1 millisecond',
                 0, 0, ${span?.traceId ?? null}::text, ${span?.spanId ?? null}::text
          FROM (SELECT clock_now() AS now) AS clock
          ON CONFLICT (task_type, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
          RETURNING task_id::text AS "taskId", (extract(epoch FROM execute_at - enqueued_at) * 1000)::float8 AS "delayMillis"`)
        if (added !== undefined) {
          yield* announce(type.name, added.delayMillis)
          return { taskId: added.taskId, isNew: true }
        }
        // A statement of its own: only a new snapshot sees what a concurrent transaction has committed meanwhile.
        const first = yield* Effect.orDie(
          decodeFirst(sql`
            SELECT task_id::text AS "taskId" FROM outbox_tasks
            WHERE task_type = ${type.name} AND idempotency_key = ${idempotencyKey}`)
        )
        if (first === undefined) {
          return yield* Effect.die(
            new Error(`task ${type.name} ${idempotencyKey} was cleaned up while it was enqueued again`)
          )
        }
        return { taskId: first.taskId, isNew: false }
      })

      // Which task: by its id, or by its type and key.
      const byId = (taskId: TaskId) => client`task_id = ${taskId}::uuid`
      const byKey = ({ name }: { readonly name: string }, key: string) =>
        client`task_type = ${name} AND idempotency_key = ${key}`

      const settle = Traced.fn("Tasks.settle")(function* (which: ReturnType<typeof byId>) {
        const { sql } = yield* Transaction
        const settled = yield* Effect.orDie(
          decodeSettled(sql`
            UPDATE outbox_tasks SET state = 'completed', finished_at = clock_now()
            WHERE ${which} AND state IN ('pending', 'failed', 'dead')
            RETURNING task_type AS "typeName", ordering_key IS NOT NULL AS keyed`)
        )
        if (settled?.keyed === true) yield* announce(settled.typeName, 0)
        return settled !== undefined
      })

      const hasten = Traced.fn("Tasks.hasten")(function* (which: ReturnType<typeof byId>, delayMillis = 0) {
        const { sql } = yield* Transaction
        const due = sql`clock_now() + ${delayMillis}::float8 * interval '1 millisecond'`
        const hastened = yield* Effect.orDie(
          decodeHastened(sql`
            UPDATE outbox_tasks SET execute_at = ${due}
            WHERE ${which} AND state IN ('pending', 'failed') AND execute_at > ${due}
            RETURNING task_type AS "typeName"`)
        )
        if (hastened !== undefined) yield* announce(hastened.typeName, delayMillis)
      })

      const lock = Effect.fnUntraced(function* (taskId: TaskId) {
        return (yield* TaskRows.lock(taskId)) ?? (yield* new TaskNotFound({ taskId }))
      })

      const cancelEffects = new Map<string, Parameters<TasksService["onCancel"]>[1]>()

      const runCancelEffect = Effect.fnUntraced(function* (taskId: TaskId, operator: Operator) {
        const { sql } = yield* Transaction
        const task = yield* Effect.orDie(
          decodeCancelled(sql`
            SELECT task_type AS "typeName", payload, idempotency_key AS "idempotencyKey" FROM outbox_tasks
            WHERE task_id = ${taskId}::uuid`)
        )
        const effect = task === undefined ? undefined : cancelEffects.get(task.typeName)
        if (task !== undefined && effect !== undefined) yield* effect({ ...task, operator })
      })

      const cancel = Effect.fn("Tasks.cancel")(function* (
        taskId: TaskId,
        operator: Operator
      ): Effect.fn.Return<Handled, TaskNotFound | TaskNotPossible, Transaction> {
        yield* runCancelEffect(taskId, operator)
        const before = yield* lock(taskId)
        // A task whose worker was asked before is stopped with its next heartbeat.
        const asItIs = { taskId, state: before.state, changed: false }
        if (before.state === "cancelled" || before.cancelRequested) return asItIs
        if (before.state === "completed") return yield* new TaskNotPossible({ taskId, reason: "is completed" })
        const state = before.state === "processing" ? before.state : "cancelled"
        yield* state === "processing" ? TaskRows.requestCancel(taskId) : TaskRows.finish(taskId, state)
        const after = { state, cancelRequested: true }
        yield* TaskRows.audit({ ...operator, action: "cancel", taskId, before, after })
        if (before.keyed) yield* announce(before.typeName, 0)
        return { taskId, state, changed: true }
      })

      const retry = Effect.fn("Tasks.retry")(function* (
        taskId: TaskId,
        operator: Operator
      ): Effect.fn.Return<Handled, TaskNotFound, Transaction> {
        const before = yield* lock(taskId)
        // What a retry leads to: a repeated one finds its task due, running, or even done.
        if (before.isDue || before.state === "processing" || before.state === "completed") {
          return { taskId, state: before.state, changed: false }
        }
        const state: TaskState = before.state === "failed" ? "failed" : "pending"
        yield* TaskRows.revive(taskId)
        yield* TaskRows.audit({ ...operator, action: "retry", taskId, before, after: { state, due: "now" } })
        yield* announce(before.typeName, 0)
        return { taskId, state, changed: true }
      })

      return Tasks.of({
        enqueue,
        settle: (taskId) => settle(byId(taskId)),
        settleByKey: (type, key) => settle(byKey(type, key)),
        hasten: (taskId, delayMillis) => hasten(byId(taskId), delayMillis),
        hastenByKey: (type, key, delayMillis) => hasten(byKey(type, key), delayMillis),
        get: Effect.fn("Tasks.get")(function* (taskId) {
          const view = yield* Effect.orDie(
            decodeView(client`SELECT ${client.literal(viewColumns)} FROM outbox_tasks WHERE task_id = ${taskId}::uuid`)
          )
          return view ?? (yield* new TaskNotFound({ taskId }))
        }),
        dead: (typeName, limit) =>
          Effect.orDie(
            decodeDead(client`
              SELECT task_id::text AS "taskId", payload, idempotency_key AS "idempotencyKey", last_error AS "lastError"
              FROM outbox_tasks
              WHERE state = 'dead' AND task_type = ${typeName} ORDER BY finished_at LIMIT ${limit}`)
          ),
        onCancel: ({ name }, effect) => Effect.sync(() => void cancelEffects.set(name, effect)),
        cancel: (taskId, operator) => transaction(cancel(taskId, operator)),
        retry: (taskId, operator) => transaction(retry(taskId, operator))
      })
    })
  )
}
