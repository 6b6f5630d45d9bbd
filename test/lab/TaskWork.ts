/**
 * The work of workers: claim and run one task after the other, while the process's heartbeat renews its leases and takes back those of lost
 * workers. This replaces the loops of TaskWorkers, and calls the steps of TaskWorker.
 */
import { Effect, Exit, Fiber } from "effect"
import type { ClaimedTask } from "../../src/tasks/TaskClaim.ts"
import type { RunResult } from "../../src/tasks/TaskRunner.ts"
import type { Actor } from "./Actor.ts"
import type { WorkerProcess, WorkerServices } from "./Processes.ts"
import type { Scheduler } from "./Scheduler.ts"

/** The tasks that a worker is running or ending. */
export interface Hands {
  readonly claimed: Array<ClaimedTask>
  /** Ends that are not written yet. */
  readonly ended: Array<{ readonly task: ClaimedTask; readonly result: RunResult }>
  /** It has looked for tasks and found none since the last change. */
  looked: boolean
  /** Time has passed since it renewed its leases. */
  beatDue: boolean
}

export class TaskWork {
  private readonly lab: Scheduler

  constructor(lab: Scheduler) {
    this.lab = lab
  }

  private seen = ""

  /** After the committed rows were read: wakes all workers if a task has changed or become due. */
  look(): void {
    const { tasks } = this.lab.committed
    if (tasks.length === 0) return
    const now = JSON.stringify(tasks)
    if (now !== this.seen) this.wake()
    this.seen = now
  }

  private wake(): void {
    for (const { hands } of this.workers) hands.looked = false
  }

  /** Time has passed: leases are renewed, or expire. */
  poll(): void {
    this.wake()
    for (const { hands } of this.workers) hands.beatDue = true
  }

  /** Whether a task is due and no living worker is there to take it. */
  get needsWorker(): boolean {
    const { tasks } = this.lab.committed
    return tasks.some(({ due, expired }) => due || expired) && this.workers.every(isFrozen)
  }

  private get workers(): ReadonlyArray<WorkerProcess> {
    return this.lab.processes.filter((process) => process.role === "worker")
  }

  jobOf(process: WorkerProcess, actor: Actor): (() => void) | undefined {
    if (isFrozen(process)) return undefined
    return actor === process.actors[0] ? this.runJob(process, actor) : this.heartJob(process, actor)
  }

  private runJob(process: WorkerProcess, actor: Actor) {
    const { hands, worker } = process
    const { claimed, ended } = hands
    const isDue = !hands.looked && this.lab.committed.tasks.some(({ due }) => due)
    if (claimed.length === 0 && ended.length === 0 && !isDue) return undefined
    const finish = Effect.gen(function* () {
      yield* worker.finishOnce(ended.slice())
      ended.length = 0
    })
    return () => {
      this.lab.ambush("worker", actor)
      this.begin(
        process,
        actor,
        Effect.gen(function* () {
          if (ended.length > 0) yield* finish
          if (claimed.length === 0) {
            const { tasks } = yield* worker.claimOnce
            claimed.push(...tasks)
            hands.looked = tasks.length === 0
          }
          while (claimed.length > 0) {
            const task = claimed.shift()!
            const fiber = yield* Effect.forkChild(worker.execute(task), { uninterruptible: true })
            worker.executedBy(task, fiber)
            ended.push({ task, result: yield* Fiber.join(fiber) })
            yield* finish
          }
        })
      )
    }
  }

  private heartJob(process: WorkerProcess, actor: Actor) {
    const { hands, worker } = process
    const [runner] = process.actors
    // A statement that waits for a lock is not interrupted: the driver's behaviour would depend on timing.
    if (hands.beatDue && worker.running() > 0 && runner?.state !== "blocked") {
      return () => {
        hands.beatDue = false
        this.begin(process, actor, worker.heartbeatOnce)
      }
    }
    if (!this.lab.committed.tasks.some(({ expired }) => expired)) return undefined
    return () => this.begin(process, actor, worker.recoverOnce)
  }

  private begin(process: WorkerProcess, actor: Actor, effect: Effect.Effect<unknown, unknown, WorkerServices>): void {
    actor.begin(
      {
        title: "tasks",
        effect: Effect.provideContext(effect, process.context),
        ended: (exit) => {
          if (Exit.isFailure(exit)) this.wake()
          this.lab.work.tellFailure(actor, exit)
        }
      },
      process.context
    )
  }
}

const isFrozen = (process: WorkerProcess) => process.actors.some((actor) => actor.frozen)
