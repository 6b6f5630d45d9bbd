/**
 * The loops of a worker. The first loop claims tasks after a wake-up, when the next task is due, and at a slow poll. Each task runs in a
 * fiber of its own. Further loops write the ends of runs in batches, renew the leases, and take back those of lost workers.
 */
import type { PgClient } from "@effect/sql-pg"
import { Context, Effect, Exit, Latch, Layer, Schedule, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import * as Grace from "../platform/Grace.ts"
import * as Supervised from "../platform/Supervised.ts"
import { type ClaimedTask, TaskClaim } from "./TaskClaim.ts"
import type { TaskFinish } from "./TaskFinish.ts"
import type { TaskHandler } from "./TaskHandler.ts"
import type { TaskLeases } from "./TaskLeases.ts"
import * as TaskMetrics from "./TaskMetrics.ts"
import type { RunResult } from "./TaskRunner.ts"
import { TaskSettings } from "./TaskSettings.ts"
import { TaskWakeup } from "./TaskWakeup.ts"
import * as TaskWorker from "./TaskWorker.ts"

/** A loop that waits for longer than this stamps its progress meanwhile, so that health does not report it as stuck. */
const napMillis = 5_000

/** The time between two looks for expired leases: a look is one probe of an index that only has running tasks. */
const sweepMillis = 2_000

/** While tasks become due all the time, claims are this far apart: each takes the tasks of that time together. */
const leastWaitMillis = 2

/** A stop checks this often whether all tasks have ended, and waits this long for the interrupted ones. */
const stopLookMillis = 20
const interruptedMillis = 2_000

/** Connections for the statements of these loops: to claim, to end, to renew or take back, to count. */
export const workerConnections = 4

export class TaskWorkers extends Context.Service<
  TaskWorkers,
  {
    /** The types that are handled here. */
    readonly typeNames: ReadonlyArray<string>
    /** Tasks that run in this process now. */
    readonly running: Effect.Effect<number>
  }
>()("paid-once/tasks/TaskWorkers") {
  /**
   * Works in supervised fibers of the layer's scope; two handlers for one type are refused. Closing it claims no more, lets the tasks
   * under way end within `graceMillis`, interrupts the rest and gives them back uncounted.
   */
  static readonly layer = <R>(
    handlers: ReadonlyArray<TaskHandler<R>>
  ): Layer.Layer<
    TaskWorkers,
    TaskWorker.HandlerTwice,
    R | TaskClaim | TaskFinish | TaskLeases | TaskWakeup | PgClient.PgClient | SqlClient.SqlClient | Supervised.Fibers
  > => Layer.effect(TaskWorkers, make(handlers))
}

const make = Effect.fnUntraced(function* <R>(handlers: ReadonlyArray<TaskHandler<R>>) {
  const worker = yield* TaskWorker.make(handlers)
  const claims = yield* TaskClaim
  const wakeup = yield* TaskWakeup
  const { graceMillis, heartbeatMillis, pollMillis } = yield* TaskSettings
  const grace = yield* Grace.make
  const context = yield* Effect.context<R | PgClient.PgClient>()

  const toClaim = yield* Latch.make(true)
  const toFinish = yield* Latch.make(false)
  const ended: Array<{ readonly task: ClaimedTask; readonly result: RunResult }> = []
  // Set while there are more due tasks than room: then the end of a run is followed by a claim.
  let backlog = false
  let askedAt: string | undefined

  const sleep = Effect.fnUntraced(function* (millis: number, stamp: Effect.Effect<void>) {
    for (let left = millis; left > 0; left -= napMillis) {
      yield* Effect.sleep(Math.min(left, napMillis))
      yield* stamp
    }
  })

  // Fibers stop in the reverse order of their forks: first the claims, and last the heartbeats, which keep the leases of tasks that still run.
  yield* TaskMetrics.sample(worker.typeNames)

  yield* Supervised.forkLoop("task sweep", (stamp) => Effect.andThen(worker.recoverOnce, sleep(sweepMillis, stamp)))
  yield* Supervised.forkLoop("task heartbeats", (stamp) =>
    Effect.andThen(sleep(heartbeatMillis, stamp), worker.heartbeatOnce)
  )

  const finishSome = Effect.fnUntraced(function* (results: ReadonlyArray<(typeof ended)[number]>) {
    yield* worker.finishOnce(results)
    // Only after the write: a failed write is repeated.
    ended.splice(ended.indexOf(results[0]!), results.length)
    if (backlog) yield* toClaim.open
    for (const { result, task } of results) {
      // Tasks of the same key may be due now, and a released task is due itself.
      const released = typeof result !== "string" && result.outcome === "released"
      if (released || (task.keyed && result !== "lost")) yield* wakeup.wake(task.typeName)
    }
  })
  const finishAll = Effect.suspend(() => {
    const results = ended.slice()
    return Effect.catchCause(finishSome(results), (cause) =>
      // A single end that can't be written must not keep back the others.
      results.length === 1
        ? Effect.failCause(cause)
        : Effect.flatMap(
            Effect.forEach(results, (result) => Effect.exit(finishSome([result]))),
            Effect.forEach((exit) => exit, { discard: true })
          )
    )
  })
  yield* Supervised.forkLoop("task ends", (stamp) =>
    Effect.suspend(() =>
      // Ends that could not be written are tried again at once, after the backoff of this loop.
      ended.length > 0
        ? Effect.andThen(toFinish.close, finishAll)
        : Effect.raceFirst(toFinish.await, Effect.forever(sleep(napMillis, stamp)))
    )
  )

  const taskScope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const drained = Effect.repeat(Effect.sync(worker.running), {
    until: (running) => running === 0,
    schedule: Schedule.spaced(stopLookMillis)
  })
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      yield* Effect.timeoutOption(drained, grace("tasks", graceMillis))
      yield* worker.interruptAll
      yield* Effect.timeoutOption(drained, interruptedMillis)
      if (worker.running() > 0) {
        yield* Effect.logWarning(`${worker.running()} tasks did not stop: their leases have to run out`)
      }
    })
  )

  const start = Effect.fnUntraced(function* (task: ClaimedTask) {
    const fiber = yield* worker.execute(task).pipe(
      Effect.flatMap((result) =>
        Effect.suspend(() => {
          ended.push({ task, result })
          return toFinish.open
        })
      ),
      Effect.provideContext(context),
      // Uninterruptible until its first step, so that an interrupted run still reports its end.
      Effect.forkIn(taskScope, { uninterruptible: true })
    )
    worker.executedBy(task, fiber)
  })

  const claimAndStart = Effect.gen(function* () {
    backlog = true
    const { again, more, tasks } = yield* worker.claimOnce
    backlog = more
    yield* Effect.forEach(tasks, start, { discard: true })
    return again
  }).pipe(Effect.uninterruptible)

  yield* wakeup.onWake({
    handle: () => void toClaim.openUnsafe(),
    wants: (typeName) => worker.free(typeName) > 0
  })
  const claimOrWait = Effect.fnUntraced(function* (stamp: Effect.Effect<void>) {
    yield* toClaim.close
    if (yield* claimAndStart) return
    // A type without room waits for the end of a run, and not for a time.
    const withRoom = worker.typeNames.filter((typeName) => worker.free(typeName) > 0)
    let waitMillis = pollMillis
    if (withRoom.length > 0) {
      const next = yield* claims.nextDue(withRoom, askedAt)
      askedAt = next.askedAt
      if (next.millis !== undefined) waitMillis = Math.min(pollMillis, Math.max(leastWaitMillis, next.millis))
    }
    yield* Effect.raceFirst(toClaim.await, sleep(waitMillis, stamp))
  })
  yield* Supervised.forkLoop("task claims", claimOrWait)

  return TaskWorkers.of({ typeNames: worker.typeNames, running: Effect.sync(worker.running) })
})
