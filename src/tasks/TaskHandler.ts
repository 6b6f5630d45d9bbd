/** Handlers: a type of tasks with the effect that does one of them. */
import { Effect, Schema } from "effect"
import type { Transaction } from "../platform/Transaction.ts"
import type { TaskId, TaskType } from "./TaskType.ts"

/** A task in the view of its handler. */
export interface RunningTask<Payload> {
  /** The same in each run. To be used as the idempotency key for calls to other services. */
  readonly taskId: TaskId
  readonly payload: Payload
  /** The key that it was enqueued with. */
  readonly idempotencyKey: string | null
  /** Which run this is, from 1. */
  readonly attempt: number
  /** A failure of this run is final. */
  readonly isLastAttempt: boolean
  /** ISO 8601 in UTC, with milliseconds. */
  readonly enqueuedAt: string
  /** The trace of the request that enqueued it, 32 hex digits. */
  readonly traceId: string | undefined
}

/**
 * Database writes that commit together with the task's end: a worker that has lost its lease writes nothing. If they fail, the run has failed.
 */
export type FinishingWrites<R = never> = Effect.Effect<unknown, unknown, Transaction | R>

/** The run failed, and no other is tried. */
export class TaskRefused extends Schema.TaggedError<TaskRefused>()("TaskRefused", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** The run failed, and the handler chooses the delay of the next one. It counts as an attempt. */
export class RetryAfter extends Schema.TaggedError<RetryAfter>()("RetryAfter", {
  delayMillis: Schema.Number,
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** The task can't be done now, for reasons that say nothing about it. Another run is tried after some seconds, and this one is not counted. */
export class NotNow extends Schema.TaggedError<NotNow>()("NotNow", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** A type of tasks with the effect that does one; `R` are the services that it needs, for example a mail transport. */
export interface TaskHandler<out R> {
  readonly type: Omit<TaskType<unknown>, "payload">
  /** Runs a task with this payload, as it is stored. A payload that the type's schema refuses also refuses the task. */
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
 * `handle` runs outside any transaction, at least once for each task, and with the same task id each time. It returns its writes to this database as
 * an effect that needs a `Transaction`: they commit with the task's end, and so once.
 *
 * After a failure or a defect the task runs again by its delays. After {@link TaskRefused} it does not, {@link RetryAfter} names a delay of its
 * own, and {@link NotNow} counts no run. The handler is interrupted after its time limit, when the lease is lost, when the task is cancelled, and at the end of a stop's grace.
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
        // The services of all members of the union, and those of the writes that they return.
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

/** The services of a handler's effect, and those of its finishing writes without their transaction. */
type ServicesOf<Handled> =
  Handled extends Effect.Effect<infer Result, infer _E, infer R>
    ? R | (Result extends Effect.Effect<infer _A, infer _E2, infer R2> ? Exclude<R2, Transaction> : never)
    : never
