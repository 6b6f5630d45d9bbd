/**
 * The steps of a worker: claim, run, end, renew, take back. Each is an effect that runs once, and waits only for the database and the handlers.
 * TaskWorkers.ts puts them into loops.
 */
import type { PgClient } from "@effect/sql-pg"
import { Effect, type Fiber, Metric, Schema } from "effect"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { RandomUuid } from "../platform/RandomUuid.ts"
import { type ClaimedTask, TaskClaim } from "./TaskClaim.ts"
import { type Ending, TaskFinish } from "./TaskFinish.ts"
import type { TaskHandler } from "./TaskHandler.ts"
import { TaskLeases } from "./TaskLeases.ts"
import * as TaskRunner from "./TaskRunner.ts"
import { TaskSettings } from "./TaskSettings.ts"

/** Two handlers for one type: which of them runs a task would be chance. */
export class HandlerTwice extends Schema.TaggedError<HandlerTwice>()("HandlerTwice", { typeName: Schema.String }) {
  override get message() {
    return `tasks of type "${this.typeName}" have two handlers: one of them must go`
  }
}

/**
 * The most tasks of a type that one statement claims. Enough to share the cost of a statement, and few enough that these tasks run and end while
 * the next ones are claimed.
 */
const maxClaim = 250

const processedTotal = Metric.counter("outbox_task_processed_total", {
  description: "Runs of tasks by how they ended",
  incremental: true
})
const recoveredTotal = Metric.counter("outbox_task_leases_recovered_total", {
  description: "Leases taken back from workers that were lost",
  incremental: true
})

/** The ends of runs, as the metric names them. */
const outcomes = ["completed", "failed", "dead", "cancelled", "released", "lost"] as const

const processed = (typeName: string, outcome: (typeof outcomes)[number]) =>
  Metric.withAttributes(processedTotal, { task_type: typeName, outcome })

/** A run of this worker, from its claim to its end. */
interface Run {
  readonly task: ClaimedTask
  /** By Monotonic.ts; from then on another worker may have the task. */
  leaseEndsMillis: number
  interruption: TaskRunner.Interruption | undefined
  /** The handler's fiber, where it runs in one of its own. */
  fiber: Fiber.Fiber<unknown, unknown> | undefined
  /** Its handler has ended: the lease is no longer renewed, and only the end is still to be written. */
  ending: boolean
}

/** The outcome of one claim. */
export interface Claimed {
  readonly tasks: ReadonlyArray<ClaimedTask>
  /** There may be more due tasks: some type had as many as were asked for. */
  readonly more: boolean
  /** There may be more due tasks of a type that has room now. */
  readonly again: boolean
}

/** The steps of one worker over the handlers that it was made with. */
export interface TaskWorker<R> {
  readonly typeNames: ReadonlyArray<string>
  /** How many tasks of the type could be begun now. */
  readonly free: (typeName: string) => number
  /** Runs that have not ended. */
  readonly running: () => number
  /** Claims due tasks, as many as there is room for. The caller runs each with {@link execute}. */
  readonly claimOnce: Effect.Effect<Claimed>
  /** Runs a claimed task's handler. The caller hands the result to {@link finishOnce}. */
  readonly execute: (task: ClaimedTask) => Effect.Effect<TaskRunner.RunResult, never, R | PgClient.PgClient>
  /** Tells the worker in which fiber a task is executed, so that it can be interrupted. */
  readonly executedBy: (task: ClaimedTask, fiber: Fiber.Fiber<unknown, unknown>) => void
  /** Writes how runs ended, and makes room for others. */
  readonly finishOnce: (
    results: ReadonlyArray<{ readonly task: ClaimedTask; readonly result: TaskRunner.RunResult }>
  ) => Effect.Effect<void>
  /** Claims, runs and ends, one task after the other. Returns how many there were. */
  readonly runOnce: Effect.Effect<number, never, R | PgClient.PgClient>
  /** Renews the leases of all runs, and interrupts those that are lost or to be cancelled. */
  readonly heartbeatOnce: Effect.Effect<void>
  /** Takes expired leases back. Returns how many there were. */
  readonly recoverOnce: Effect.Effect<number>
  /** Interrupts all handlers; their tasks are given back, and no attempt is counted. */
  readonly interruptAll: Effect.Effect<void>
}

/** Makes a worker. Two handlers for one type are refused. */
export const make = Effect.fnUntraced(function* <R>(handlers: ReadonlyArray<TaskHandler<R>>) {
  const claims = yield* TaskClaim
  const finishes = yield* TaskFinish
  const leases = yield* TaskLeases
  const runner = yield* TaskRunner.make
  const faults = yield* Faults
  const settings = yield* TaskSettings
  const worker = `${process.pid}:${(yield* RandomUuid)().slice(0, 8)}`

  const byType = new Map<string, TaskHandler<R>>()
  for (const handler of handlers) {
    const typeName = handler.type.name
    if (byType.has(typeName)) return yield* new HandlerTwice({ typeName })
    byType.set(typeName, handler)
    for (const outcome of outcomes) yield* Metric.value(processed(typeName, outcome))
    yield* Metric.value(TaskRunner.durationOf(typeName))
  }
  yield* Metric.value(recoveredTotal)
  const typeNames = [...byType.keys()]
  const schedules = new Map([...byType].map(([name, { type }]) => [name, TaskRunner.delaysOf(type, settings)]))

  const runs = new Map<string, Run>()
  const counts = new Map<string, number>()
  const free = (typeName: string) => (byType.get(typeName)?.type.concurrency ?? 0) - (counts.get(typeName) ?? 0)
  const count = (typeName: string, by: number) => counts.set(typeName, (counts.get(typeName) ?? 0) + by)

  const claimOnce = Effect.gen(function* () {
    const wanted = typeNames
      .map((typeName) => ({ typeName, free: Math.min(free(typeName), maxClaim) }))
      .filter((want) => want.free > 0)
    const leaseEndsMillis = (yield* Monotonic.millis) + settings.leaseMillis
    const tasks = yield* claims.claim(wanted, worker)
    // A claim that finds nothing is no claim: a fault would strike a worker at rest.
    if (tasks.length > 0) yield* faults.at("task.after-claim")
    const taken = new Map<string, number>()
    for (const task of tasks) {
      runs.set(task.taskId, { task, leaseEndsMillis, interruption: undefined, fiber: undefined, ending: false })
      count(task.typeName, 1)
      taken.set(task.typeName, (taken.get(task.typeName) ?? 0) + 1)
    }
    const full = wanted.filter((want) => taken.get(want.typeName) === want.free)
    // A type without room was not asked for, and may have more.
    return {
      tasks,
      more: full.length > 0 || wanted.length < typeNames.length,
      again: full.some(({ typeName }) => free(typeName) > 0)
    }
  }).pipe(
    // Uninterruptible: a claimed task that this worker does not know of would wait until its lease expires.
    Effect.uninterruptible
  )

  const execute = (task: ClaimedTask) =>
    Effect.suspend(() => {
      const run = runs.get(task.taskId)
      const handler = byType.get(task.typeName)
      if (run === undefined || handler === undefined) {
        return Effect.die(new Error(`task ${task.taskId} was not claimed by this worker`))
      }
      return Effect.map(
        runner.run(task, handler, () => run.interruption),
        (result) => {
          run.ending = true
          return result
        }
      )
    })

  const finishOnce = Effect.fnUntraced(function* (
    results: ReadonlyArray<{ readonly task: ClaimedTask; readonly result: TaskRunner.RunResult }>
  ) {
    const endings = results.flatMap(({ result }): ReadonlyArray<Ending> => (typeof result === "string" ? [] : [result]))
    const ended = new Set<string>(yield* finishes.finish(endings))
    // Runs that all lost their leases have finished nothing.
    if (ended.size > 0 || results.some(({ result }) => result === "completed")) yield* faults.at("task.after-finish")
    const outcomeCounts = new Map<string, { readonly of: ReturnType<typeof processed>; count: number }>()
    for (const { result, task } of results) {
      runs.delete(task.taskId)
      count(task.typeName, -1)
      const outcome = typeof result === "string" ? result : ended.has(task.taskId) ? result.outcome : "lost"
      const key = `${task.typeName} ${outcome}`
      const series = outcomeCounts.get(key) ?? { of: processed(task.typeName, outcome), count: 0 }
      series.count += 1
      outcomeCounts.set(key, series)
    }
    for (const series of outcomeCounts.values()) yield* Metric.update(series.of, series.count)
  }, Effect.uninterruptible)

  const interrupt = (run: Run, reason: TaskRunner.Interruption) => {
    run.interruption ??= reason
    run.fiber?.interruptUnsafe()
  }

  const heartbeatOnce = Effect.gen(function* () {
    const beating = [...runs.values()].filter((run) => !run.ending)
    const sentMillis = yield* Monotonic.millis
    const renewed = yield* Effect.exit(
      leases.renew(beating.map(({ task }) => task)).pipe(
        // A lease lasts for several heartbeats: the next one can still renew it, on another connection.
        Effect.timeoutOrElse({
          duration: settings.heartbeatMillis,
          orElse: () => Effect.die(new Error(`Postgres did not answer a heartbeat for ${settings.heartbeatMillis} ms`))
        })
      )
    )
    if (renewed._tag === "Success") {
      const held = new Map(renewed.value.map((lease) => [lease.taskId, lease]))
      for (const run of beating) {
        const lease = held.get(run.task.taskId)
        if (lease === undefined) {
          // A run that has ended meanwhile is not lost.
          if (!run.ending) interrupt(run, "lost")
        } else {
          run.leaseEndsMillis = sentMillis + settings.leaseMillis
          if (lease.cancelRequested) interrupt(run, "cancelled")
        }
      }
      return
    }
    // It is unknown whether the leases were renewed. If a lease has expired by this process's clock, another worker may have the task.
    const nowMillis = yield* Monotonic.millis
    for (const run of beating) if (run.leaseEndsMillis <= nowMillis && !run.ending) interrupt(run, "lost")
    return yield* renewed
  })

  const recoverOnce = Effect.gen(function* () {
    const recovered = yield* leases.recover(schedules)
    if (recovered.length === 0) return 0
    yield* Metric.update(recoveredTotal, recovered.length)
    for (const { state, typeName } of recovered) {
      if (state === "dead") yield* Metric.update(processed(typeName, "dead"), 1)
      // A dead task waits for a person.
      const log = state === "dead" ? Effect.logError : Effect.logWarning
      yield* log(`a task of type ${typeName} lost its worker, and is ${state} now`)
    }
    return recovered.length
  })

  return {
    typeNames,
    free,
    running: () => runs.size,
    claimOnce,
    execute,
    executedBy: (task, fiber) => {
      const run = runs.get(task.taskId)
      if (run === undefined) return
      run.fiber = fiber
      // It was to be interrupted before it had begun.
      if (run.interruption !== undefined) fiber.interruptUnsafe()
    },
    finishOnce,
    runOnce: Effect.gen(function* () {
      const { tasks } = yield* claimOnce
      for (const task of tasks) yield* finishOnce([{ task, result: yield* execute(task) }])
      return tasks.length
    }),
    heartbeatOnce,
    recoverOnce,
    interruptAll: Effect.sync(() => {
      for (const run of runs.values()) if (!run.ending) interrupt(run, "released")
    })
  } satisfies TaskWorker<R>
})
