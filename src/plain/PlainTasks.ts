/** Background tasks as two layers in their plain form; they stand on the same database as those of `Plain.ts`. */
import { Layer } from "effect"
import { TaskClaim } from "../tasks/TaskClaim.ts"
import { TaskFinish } from "../tasks/TaskFinish.ts"
import type { TaskHandler } from "../tasks/TaskHandler.ts"
import { TaskLeases } from "../tasks/TaskLeases.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { TaskWakeup } from "../tasks/TaskWakeup.ts"
import { TaskWorkers } from "../tasks/TaskWorkers.ts"

/** Enqueues tasks in the transaction that needs them. */
export const tasks = Layer.provideMerge(Tasks.layer, TaskWakeup.layer)

/** Runs the tasks that are due. Tasks are shared with the workers of other processes. */
export const workers = <R>(handlers: ReadonlyArray<TaskHandler<R>>) =>
  TaskWorkers.layer<R>(handlers).pipe(Layer.provide([TaskClaim.layer, TaskLeases.layer, TaskFinish.layer]))
