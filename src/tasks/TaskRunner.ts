/** Runs a task once: its handler, its time limit, and the meaning of its end for the task. */
import type { PgClient } from "@effect/sql-pg"
import { Cause, Effect, Exit, Formatter, Metric, Option, Schema, Tracer } from "effect"
import * as Backoff from "../platform/Backoff.ts"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as DatabaseOutage from "../platform/DatabaseOutage.ts"
import * as Tracing from "../platform/Tracing.ts"
import type { ClaimedTask } from "./TaskClaim.ts"
import { type Ending, LeaseLost, TaskFinish } from "./TaskFinish.ts"
import { type FinishingWrites, NotNow, RetryAfter, type TaskHandler, TaskRefused } from "./TaskHandler.ts"
import { TaskSettings } from "./TaskSettings.ts"

/** The handler was interrupted at its time limit. */
export class TaskTimedOut extends Schema.TaggedError<TaskTimedOut>()("TaskTimedOut", { timeoutMillis: Schema.Number }) {
  override get message() {
    return `the handler was not done after ${this.timeoutMillis} ms`
  }
}

/** Why a worker interrupted a run: its lease was lost, its task is to be cancelled, or the process stops. */
export type Interruption = "lost" | "cancelled" | "released"

/** The end of a run: one that is still to be written, or `completed` (written already), or `lost` (another worker has the task). */
export type RunResult = Ending | "completed" | "lost"

/** The characters of an error that are stored for each run. */
const maxErrorLength = 2_000

const durationSeconds = Metric.histogram("outbox_task_duration_seconds", {
  description: "From a run's start to its handler's end",
  boundaries: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800]
})

/** The metric of a type's durations. */
export const durationOf = (typeName: string) => Metric.withAttributes(durationSeconds, { task_type: typeName })

/** The delays between the runs of a type, in milliseconds. */
export const delaysOf = (
  type: TaskHandler<never>["type"],
  settings: { readonly retryDelaysMillis: ReadonlyArray<number> }
) => type.retryDelaysMillis ?? settings.retryDelaysMillis

/** See {@link make}. */
export interface TaskRunner {
  /**
   * Runs the task's handler and returns the end of the run. It never fails: an error of the handler is an end of the run. If the handler is
   * interrupted, `interruption` gives the reason; without a reason the run has failed. The finishing writes of the handler are written here, together
   * with the task's end.
   */
  readonly run: <R>(
    task: ClaimedTask,
    handler: TaskHandler<R>,
    interruption: () => Interruption | undefined
  ) => Effect.Effect<RunResult, never, R | PgClient.PgClient>
}

export const make = Effect.gen(function* () {
  const faults = yield* Faults
  const finish = yield* TaskFinish
  const settings = yield* TaskSettings

  /** The handler, in the trace of the request that enqueued the task. */
  const handle = <R>(task: ClaimedTask, { run, type }: TaskHandler<R>) => {
    const running = {
      taskId: task.taskId,
      idempotencyKey: task.idempotencyKey,
      attempt: task.attempt,
      isLastAttempt: task.attempt > delaysOf(type, settings).length,
      enqueuedAt: task.enqueuedAt,
      traceId: task.traceId ?? undefined
    }
    return faults.at("task.during-run").pipe(
      Effect.andThen(Effect.suspend(() => run(task.payload, running))),
      Effect.timeoutOrElse({
        duration: type.timeoutMillis,
        orElse: () => Effect.fail(new TaskTimedOut({ timeoutMillis: type.timeoutMillis }))
      }),
      Tracing.within(`task ${type.name}`, {
        kind: "consumer",
        parent:
          task.traceId === null || task.spanId === null
            ? undefined
            : Tracer.externalSpan({ traceId: task.traceId, spanId: task.spanId }),
        attributes: () => ({ task_id: task.taskId, task_type: type.name, attempt: task.attempt })
      })
    )
  }

  const failed = Effect.fnUntraced(function* <E>(
    task: ClaimedTask,
    type: TaskHandler<never>["type"],
    cause: Cause.Cause<E>
  ) {
    const error = textOf(cause)
    const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
    const outage = DatabaseOutage.inCause(cause)
    // A full disk says nothing about the task.
    const reason =
      outage !== undefined ? DatabaseOutage.wordsOf(outage) : failure instanceof NotNow ? failure.reason : undefined
    if (reason !== undefined) {
      const delayMillis = yield* Backoff.millisAfter(Backoff.taskOutage, 1)
      yield* Effect.logWarning(
        `task ${type.name} will be run again in ${Math.round(delayMillis)} ms, uncounted: ${reason}`
      )
      return { taskId: task.taskId, token: task.token, outcome: "released", delayMillis } satisfies Ending
    }
    const wait = yield* Backoff.millisAfterOrEnd(Backoff.staircase(delaysOf(type, settings)), task.attempt)
    const { taskId, token } = task
    if (wait === undefined || failure instanceof TaskRefused) {
      yield* Effect.logError(`task ${type.name} is dead: ${error}`, cause)
      return { taskId, token, outcome: "dead", error } satisfies Ending
    }
    const delayMillis = failure instanceof RetryAfter ? Math.max(0, failure.delayMillis) : wait
    yield* Effect.logWarning(
      `task ${type.name} failed, and will be run again in ${Math.round(delayMillis)} ms: ${error}`
    )
    return { taskId, token, outcome: "failed", delayMillis, error } satisfies Ending
  })

  const complete = <R>(task: ClaimedTask, writes: FinishingWrites<R>) =>
    finish.complete({ taskId: task.taskId, token: task.token, outcome: "completed" }, writes).pipe(
      Effect.as<RunResult>("completed"),
      Effect.catchIf(
        (error): error is LeaseLost => error instanceof LeaseLost,
        () => Effect.succeed<RunResult>("lost")
      )
    )

  const handleAndEnd = Effect.fnUntraced(function* <R>(
    task: ClaimedTask,
    handler: TaskHandler<R>,
    interruption: () => Interruption | undefined
  ) {
    const { taskId, token } = task
    const startedMillis = yield* Monotonic.millis
    const exit = yield* Effect.exit(Effect.interruptible(handle(task, handler)))
    yield* Metric.update(durationOf(task.typeName), ((yield* Monotonic.millis) - startedMillis) / 1_000)
    if (Exit.isSuccess(exit)) {
      yield* faults.at("task.after-handler")
      if (!Effect.isEffect(exit.value)) return { taskId, token, outcome: "completed" } satisfies Ending
      const completed = yield* Effect.exit(complete(task, exit.value))
      return Exit.isSuccess(completed) ? completed.value : yield* failed(task, handler.type, completed.cause)
    }
    const reason = Cause.hasInterrupts(exit.cause) ? interruption() : undefined
    if (reason === "lost") return "lost" satisfies RunResult
    if (reason !== undefined) return { taskId, token, outcome: reason } satisfies Ending
    return yield* failed(task, handler.type, exit.cause)
  })

  const run = <R>(task: ClaimedTask, handler: TaskHandler<R>, interruption: () => Interruption | undefined) =>
    // Only the handler is interruptible: an interruption ends the run, and that end is still to be written.
    Effect.uninterruptible(handleAndEnd(task, handler, interruption)).pipe(
      Effect.annotateLogs({
        task_id: task.taskId,
        task_type: task.typeName,
        attempt: task.attempt,
        ...(task.traceId === null ? {} : { trace_id: task.traceId })
      })
    )

  return { run } satisfies TaskRunner
})

/** An error as text, for the history of its task. */
const textOf = (cause: Cause.Cause<unknown>): string => {
  if (Cause.hasInterruptsOnly(cause)) return "the handler interrupted itself"
  const error = Cause.squash(cause)
  const text =
    error instanceof Error
      ? `${error.name}: ${error.message}`
      : typeof error === "string"
        ? error
        : // JSON.stringify would throw at a bigint: the run would never end, and its task would stay leased.
          Formatter.format(error)
  // Postgres can't store U+0000, and an end that can't be written would be lost.
  return text.replaceAll("\u0000", "").slice(0, maxErrorLength)
}
