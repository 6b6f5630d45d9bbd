/** The lab's own tasks, whose runs fail as their data says, and an operator's decisions about them. */
import { Effect, Schema } from "effect"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskId, TaskType } from "../../src/tasks/TaskType.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { gate } from "./Actor.ts"
import { make, type Request } from "./Requests.ts"

const Payload = Schema.Struct({
  /** How many runs fail. */
  failures: Schema.Int,
  /** Whether it fails permanently. */
  refused: Schema.Boolean
})

/** The most runs of a task: after the third it is dead. */
export const maxRuns = 3

export const labTask: TaskType<typeof Payload.Type> = {
  name: "lab",
  payload: Payload,
  concurrency: 2,
  timeoutMillis: 60_000,
  retryDelaysMillis: Array.from({ length: maxRuns - 1 }, () => 1_000)
}

/** An effect outside, which can't be rolled back, and then a row that commits with the task's end. */
export const labHandler = (did: (taskId: string) => void) =>
  TaskHandler.make(
    labTask,
    Effect.fnUntraced(function* ({ attempt, payload, taskId }) {
      yield* gate("do the work")
      did(taskId)
      yield* gate("the work is done")
      if (payload.refused) return yield* new TaskHandler.TaskRefused({ reason: "it makes no sense" })
      if (attempt <= payload.failures) return yield* Effect.fail(new Error("it fails on purpose"))
      return Effect.flatMap(
        Transaction,
        ({ sql }) => sql`INSERT INTO lab_work (task_id, attempt) VALUES (${taskId}::uuid, ${attempt}::int4)`
      )
    })
  )

/** How a task's runs go, by the command's number. Most succeed: the order of two successful tasks is harder to keep. */
const ways = [
  { failures: 0, refused: false, says: "" },
  { failures: 1, refused: false, says: " (its first run will fail)" },
  { failures: maxRuns, refused: false, says: " (all its runs will fail)" },
  { failures: 0, refused: true, says: " (it will be refused)" },
  { failures: 0, refused: false, says: "" }
] as const

export const enqueue = (number: number, b: number): Request => {
  const way = ways[Math.floor(b / 2) % ways.length]!
  const inLine = b % 2 === 1
  return make(
    `enqueue a task${inLine ? " in line" : ""}${way.says}`,
    -1,
    false,
    Effect.gen(function* () {
      const tasks = yield* Tasks
      const { taskId } = yield* Transaction.run(
        tasks.enqueue(
          labTask,
          { failures: way.failures, refused: way.refused },
          { idempotencyKey: `request-${number}`, ...(inLine ? { orderingKey: "line" } : {}) }
        )
      )
      const text = JSON.stringify({ status: "enqueued", taskId })
      return { _tag: "Answer", answer: { says: "enqueued", order: taskId, payment: undefined, text } }
    })
  )
}

/** An operator's decision about a task, whatever its state is by then. */
export const operateTask = (what: "cancel" | "retry", task: { readonly name: string; readonly id: string }): Request =>
  make(
    `${what === "retry" ? "run" : what} task ${task.name}${what === "retry" ? " again" : ""}`,
    -1,
    false,
    Effect.gen(function* () {
      const tasks = yield* Tasks
      const operator = { actor: "operator", reason: "as the case says" }
      yield* Effect.result(tasks[what](task.id as TaskId, operator))
      return { _tag: "Done" }
    })
  )
