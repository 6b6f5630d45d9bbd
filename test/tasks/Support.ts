/** Tasks that have nothing to do with orders, for the tests of the engine. */
import { type Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { TaskClaim } from "../../src/tasks/TaskClaim.ts"
import { TaskFinish } from "../../src/tasks/TaskFinish.ts"
import { TaskLeases } from "../../src/tasks/TaskLeases.ts"
import { TaskSettings } from "../../src/tasks/TaskSettings.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskType } from "../../src/tasks/TaskType.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A type of tasks whose payload is a number. */
export const taskType = (
  name: string,
  options: Partial<Pick<TaskType<unknown>, "concurrency" | "timeoutMillis" | "retryDelaysMillis">> = {}
): TaskType<{ readonly number: number }> => ({
  name,
  payload: Schema.Struct({ number: Schema.Finite }),
  concurrency: 10,
  timeoutMillis: 30_000,
  ...options
})

export const plain = taskType("plain")

/** The services of a process that only enqueues. */
export const enqueuer = Tasks.layer.pipe(Layer.provideMerge(TaskWakeup.layer), Layer.provideMerge(TestProcess.platform))

/** Enqueues in a transaction of its own. */
export const enqueue = (...args: Parameters<Tasks["Service"]["enqueue"]>) =>
  Effect.flatMap(Tasks, (tasks) => Transaction.run(tasks.enqueue(...args)))

/** All tasks, in the order of their enqueuing. */
export const rows = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{
    readonly taskId: string
    readonly type: string
    readonly state: string
    readonly attempts: number
    readonly token: number
    readonly number: number
    readonly lastError: string | null
    readonly history: ReadonlyArray<{ readonly attempt: number; readonly error: string }>
    /** The seconds until it is due. */
    readonly dueSeconds: number
  }>`
    SELECT task_id::text AS "taskId", task_type AS type, state, attempts, token, (payload ->> 'number')::float8 AS number,
           last_error AS "lastError", history, extract(epoch FROM execute_at - clock_now())::float8 AS "dueSeconds"
    FROM outbox_tasks ORDER BY seq`
})

/** The engine's statements. */
export const steps = Layer.mergeAll(TaskClaim.layer, TaskFinish.layer, TaskLeases.layer)

/** Short, for a test that needs real time. */
export const settings = (changes: Partial<Context.Service.Shape<typeof TaskSettings>> = {}) =>
  Layer.effect(
    TaskSettings,
    Effect.map(TaskSettings, (defaults) => ({ ...defaults, ...changes }))
  )

/** Moves the database's clock. */
export { advance, install } from "../support/DatabaseClock.ts"
