/** Types of tasks as values without code: the code that enqueues a task imports its type, and not its handler. */
import { Schema } from "effect"

/** A task's id: a UUID version 7. It is also the idempotency key for calls to other services. */
export const TaskId = Schema.String.check(Schema.isUUID(7)).pipe(Schema.brand("TaskId"))
export type TaskId = typeof TaskId.Type

/**
 * - `pending`: It has not run yet, or a worker that stopped gave it back.
 * - `processing`: It is leased to a worker.
 * - `failed`: Its last run failed, and it will run again.
 * - `completed`, `cancelled`: It is finished.
 * - `dead`: Its last attempt failed, and it waits for an operator.
 */
export const TaskState = Schema.Literals(["pending", "processing", "completed", "failed", "dead", "cancelled"])
export type TaskState = typeof TaskState.Type

/** A type of tasks: a value in a file of its own. */
export interface TaskType<Payload> {
  /** 1 to 100 letters, digits, dots, dashes or underscores. Stored with each task: never renamed. */
  readonly name: string
  /** Checked when a task is enqueued, and again when it runs: rows outlive a deployment. */
  readonly payload: Schema.Codec<Payload, Schema.Json>
  /** The largest number of concurrent runs in one process. */
  readonly concurrency: number
  /** A longer run is interrupted, and has failed. */
  readonly timeoutMillis: number
  /** The delays between runs, instead of the setting's; `Backoff.staircase` varies each by a fifth. There is one run more than delays. */
  readonly retryDelaysMillis?: ReadonlyArray<number>
}

/** The least and most urgent; 0 unless said otherwise. */
export const priorities = { lowest: -5, highest: 5 } as const
