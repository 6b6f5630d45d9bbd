/** How a kind of tasks is done: its type, and the effect that does one of them. */
import { Effect, Schema } from "effect"
import type { Transaction } from "../platform/Transaction.ts"
import type { TaskId, TaskType } from "./TaskType.ts"

/** A task as its handler sees it. */
export interface RunningTask<Payload> {
  /** The same in each run: hand it to the outside as the idempotency key. */
  readonly taskId: TaskId
  readonly payload: Payload
  /** Which run this is, from 1. */
  readonly attempt: number
  /** A failure of this run is final. */
  readonly isLastAttempt: boolean
  /** ISO 8601 in UTC, with milliseconds. */
  readonly enqueuedAt: string
  /** The trace of the request that asked for it, 32 hex digits. */
  readonly traceId: string | undefined
}

/**
 * Database writes that commit together with the task's end, and with it alone: a worker that has lost its lease writes nothing.
 * When they fail, the run has failed.
 */
export type FinishingWrites<R = never> = Effect.Effect<unknown, unknown, Transaction | R>

/** The run failed for good: no other will be tried. */
export class TaskRefused extends Schema.TaggedError<TaskRefused>()("TaskRefused", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** The run failed, and says itself when to try again. It counts as any other. */
export class RetryAfter extends Schema.TaggedError<RetryAfter>()("RetryAfter", {
  delayMillis: Schema.Number,
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** A kind of tasks with the effect that does it; `R` is what the effect needs, for example a mail transport. */
export interface TaskHandler<out R> {
  readonly type: Omit<TaskType<unknown>, "payload">
  /** One run of a task with this payload, as it is stored; one that can't be read refuses the task. */
  readonly run: (
    payload: unknown,
    task: Omit<RunningTask<unknown>, "payload">
  ) => Effect.Effect<void | FinishingWrites<R>, unknown, R>
}

/**
 * A handler.
 *
 * **Details**
 *
 * `handle` runs outside any transaction, at least once for each task, and with the same task id each time. What it writes to this
 * database it returns, as an effect that needs a `Transaction`: that commits with the task's end, so once. A failure or a defect
 * means another run by the schedule; {@link TaskRefused} means none, {@link RetryAfter} one at a time of its own. It is interrupted
 * when its time is up, when the lease is lost, when the task is cancelled, and at the end of a stop's grace.
 */
export const make = <Payload, Handled extends Effect.Effect<void | FinishingWrites<unknown>, unknown, unknown>>(
  type: TaskType<Payload>,
  handle: (task: RunningTask<Payload>) => Handled
): TaskHandler<ServicesOf<Handled>> => {
  const decode = Schema.decodeUnknownEffect(type.payload)
  return {
    type,
    run: (payload, task) =>
      decode(payload).pipe(
        // Another run would read the same.
        Effect.mapError(
          (error) => new TaskRefused({ reason: `its payload is none of ${type.name}: ${error.message}` })
        ),
        // What a union of effects needs is what its members need, and what they give back to write.
        Effect.flatMap(
          (decoded) =>
            handle({ ...task, payload: decoded }) as Effect.Effect<
              void | FinishingWrites<ServicesOf<Handled>>,
              unknown,
              ServicesOf<Handled>
            >
        )
      )
  }
}

/** What a handler's effect needs, and what its finishing writes need beside their transaction. */
type ServicesOf<Handled> =
  Handled extends Effect.Effect<infer Result, infer _E, infer R>
    ? R | (Result extends Effect.Effect<infer _A, infer _E2, infer R2> ? Exclude<R2, Transaction> : never)
    : never
