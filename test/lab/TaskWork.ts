/**
 * What workers do: claim and run, one task after the other, while the process's heart renews its leases and takes back those of the lost.
 * It stands in for the loops of TaskWorkers, and hands it to the steps of TaskWorker.
 */
import { Effect, Exit, Fiber } from "effect"
import type { ClaimedTask } from "../../src/tasks/TaskClaim.ts"
import type { RunResult } from "../../src/tasks/TaskRunner.ts"
import type { Actor } from "./Actor.ts"
import type { WorkerProcess, WorkerServices } from "./Processes.ts"
import type { Scheduler } from "./Scheduler.ts"

/** What a worker has in hand. */
export interface Hands {
  readonly claimed: Array<ClaimedTask>
  /** Ends that are still to be written. */
  readonly ended: Array<{ readonly task: ClaimedTask; readonly result: RunResult }>
  /** It has looked for tasks, found none, and nothing has changed since. */
  looked: boolean
  /** Time has passed since its leases were renewed. */
  beatDue: boolean
}

export class TaskWork {
  private readonly lab: Scheduler

  constructor(lab: Scheduler) {
    this.lab = lab
  }

  private seen = ""

  /** What is committed was looked at: where a task has changed since, or its time has come, it is looked for. */
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

  /** Time has passed: leases are renewed, or run out. */
  poll(): void {
    this.wake()
    for (const { hands } of this.workers) hands.beatDue = true
  }

  /** Something is due that nobody is there for. */
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
    // A statement that waits for a lock is not to be interrupted: what the driver does then depends on the moment.
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
