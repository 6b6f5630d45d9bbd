/** Kinds of tasks as typed values, without code: whoever enqueues a task imports its type, and not the handler. */
import { Schema } from "effect"

/** A task's id: a UUID version 7, and the idempotency key that is handed to the outside. */
export const TaskId = Schema.String.check(Schema.isUUID(7)).pipe(Schema.brand("TaskId"))
export type TaskId = typeof TaskId.Type

/**
 * - `pending`: has not run yet, or was given back by a worker that stopped
 * - `processing`: leased to a worker
 * - `failed`: its last run failed, and it will be run again
 * - `completed`, `cancelled`: finished
 * - `dead`: its last run failed, and an operator has to look at it
 */
export const TaskState = Schema.Literals(["pending", "processing", "completed", "failed", "dead", "cancelled"])
export type TaskState = typeof TaskState.Type

/** What a kind of tasks is. One value a kind, in a file of its own. */
export interface TaskType<Payload> {
  /** 1 to 100 letters, digits, dots, dashes or underscores. Stored with each task: never renamed. */
  readonly name: string
  /** Checked when a task is enqueued, and again when it is run: its rows outlive a deployment. */
  readonly payload: Schema.Codec<Payload, Schema.Json>
  /** At most so many at once in one process. */
  readonly concurrency: number
  /** A run that takes longer is interrupted, and has failed. */
  readonly timeoutMillis: number
  /** The waits between runs, instead of the setting's. There is one run more than waits. */
  readonly retryDelaysMillis?: ReadonlyArray<number>
}

/** The least and most urgent; 0 unless said otherwise. */
export const priorities = { lowest: -5, highest: 5 } as const
