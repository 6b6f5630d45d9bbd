/**
 * Which request or lane an idle actor takes next. The work of consumers and workers has its own files. This replaces the assignment of
 * lanes and the loops of LaneWorkers, and calls the service's own steps.
 */
import { Effect, Exit } from "effect"
import { SqlError } from "effect/sql"
import { DependencyDown, PermanentFailure } from "../../src/inbox/Subscriber.ts"
import { BrokerUnavailable, MessageRejected, TopicUnavailable } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { Lane } from "../../src/outbox/Lane.ts"
import { LowWaterMarks } from "../../src/postgres/fast/LowWaterMarks.ts"
import { type Actor, usedLanes } from "./Actor.ts"
import type { DispatcherProcess, Process } from "./Processes.ts"
import type { Scheduler } from "./Scheduler.ts"
import { HandlerFailed } from "./LabSubscribers.ts"
import { ConsumerWork } from "./ConsumerWork.ts"
import { TaskWork } from "./TaskWork.ts"

/**
 * Whether the lab has caused this error: it ends sessions, makes transactions conflict and handlers fail, and makes the broker unavailable
 * or refuse.
 */
const isCausedHere = (error: unknown) =>
  (SqlError.isSqlError(error) &&
    ["ConnectionError", "SerializationError", "DeadlockError"].includes(error.reason._tag)) ||
  error instanceof DependencyDown ||
  error instanceof HandlerFailed ||
  error instanceof PermanentFailure ||
  error instanceof BrokerUnavailable ||
  error instanceof TopicUnavailable ||
  error instanceof MessageRejected

export class Work {
  private readonly lab: Scheduler
  /** Lanes with new events, or that a poll wants fetched. */
  private readonly wokenLanes = new Set<number>()

  /** The next idle dispatcher raises the low-water marks. */
  floorsDue = false

  readonly tasks: TaskWork
  readonly consumers: ConsumerWork

  constructor(lab: Scheduler) {
    this.lab = lab
    this.tasks = new TaskWork(lab)
    this.consumers = new ConsumerWork(lab)
  }

  /** The lane has something new. */
  wake(lane: number): void {
    this.wokenLanes.add(lane)
    for (const actor of this.lab.actors) actor.lookedAt.delete(lane)
  }

  /** Wakes every lane with rows, every partition and all tasks. */
  pollAll(): void {
    for (const { lane } of this.lab.committed.queue) this.wake(lane)
    this.consumers.poll()
    this.tasks.poll()
  }

  /** The owner of the share: the process that works on it now and is not frozen, else one of the living processes in turn. */
  private owner<P extends Process>(
    processes: ReadonlyArray<P>,
    share: number,
    isAt: (process: P) => boolean
  ): P | undefined {
    const living = processes.filter((process) => !process.actors.some((actor) => actor.frozen))
    return living.find(isAt) ?? living[share % living.length]
  }

  /** The next job of an idle actor, if there is one. */
  jobOf(process: Process, actor: Actor): (() => void) | undefined {
    switch (process.role) {
      case "client": {
        if (process.line.length === 0) return undefined
        return () => {
          const request = process.line.shift()!
          this.lab.ambush("client", actor)
          this.lab.story.says(actor.name, `is asked to ${request.title}`)
          actor.begin(
            {
              title: request.title,
              effect: Effect.provideContext(request.send, process.context),
              ended: (exit) => {
                const violation = request.take(exit)
                if (violation !== undefined) this.lab.report(violation)
                // An operator's wake-ups don't exist in the lab, so everything is polled.
                if (request.order < 0) this.pollAll()
                this.tellFailure(actor, exit)
              }
            },
            process.context
          )
        }
      }
      case "dispatcher":
        return this.floorsJob(process, actor) ?? this.drainJob(process, actor)
      case "consumer":
        return this.consumers.jobOf(process, actor)
      case "worker":
        return this.tasks.jobOf(process, actor)
    }
  }

  /** Two rounds: the first one notes the highest numbers, the second one raises the marks once all older transactions have ended. */
  private floorsJob(process: DispatcherProcess, actor: Actor) {
    if (!this.floorsDue) return undefined
    return () => {
      this.floorsDue = false
      this.lab.story.says(actor.name, "raises the lanes' floors")
      actor.begin(
        {
          title: "floors",
          effect: Effect.flatMap(LowWaterMarks, (marks) =>
            Effect.repeat(marks.raise(usedLanes.map((lane) => Lane.make(lane))), { times: 1 })
          ).pipe(Effect.provideContext(process.context)),
          ended: (exit) => this.tellFailure(actor, exit)
        },
        process.context
      )
    }
  }

  /** One round over all woken lanes that the dispatcher owns and that are not in flight there. */
  private drainJob(process: DispatcherProcess, actor: Actor) {
    const dispatchers = this.lab.processes.filter((one) => one.role === "dispatcher")
    const isAt = (one: DispatcherProcess, lane: number) =>
      one.actors.some((other) => other.job?.lanes?.includes(lane) === true)
    const { lanesHaveOwners, workersPerLane } = this.lab.environment.parts
    const lanes = [...this.wokenLanes]
      .toSorted((a, b) => a - b)
      .filter((candidate) => {
        if (actor.lookedAt.has(candidate)) return false
        const owns = !lanesHaveOwners || this.owner(dispatchers, candidate, (one) => isAt(one, candidate)) === process
        return (
          owns &&
          process.actors.filter((other) => other.job?.lanes?.includes(candidate) === true).length < workersPerLane
        )
      })
      .map((lane) => Lane.make(lane))
    if (lanes.length === 0) return undefined
    return () => {
      if (this.lab.committed.queue.some((row) => lanes.some((lane) => lane === row.lane)))
        this.lab.ambush("dispatcher", actor)
      for (const lane of lanes) {
        // If several workers may take a lane, each of them gets the wake-up.
        if (lanesHaveOwners && workersPerLane === 1) this.wokenLanes.delete(lane)
        else actor.lookedAt.add(lane)
      }
      const held = lanes.filter((lane) => this.lab.committed.parked.includes(lane))
      actor.begin(
        {
          title: `lanes ${lanes.join(", ")}`,
          lanes,
          effect: Effect.flatMap(Dispatcher, (dispatcher) =>
            Effect.andThen(held.length === 0 ? Effect.void : dispatcher.retryHeld(held), dispatcher.drainOnce(lanes))
          ).pipe(Effect.provideContext(process.context)),
          ended: (exit) => {
            if (Exit.isSuccess(exit) && exit.value === "more") {
              for (const lane of lanes) if (this.lab.committed.queue.some((row) => row.lane === lane)) this.wake(lane)
            }
            this.tellFailure(actor, exit)
          }
        },
        process.context
      )
    }
  }

  tellFailure(actor: Actor, exit: Exit.Exit<unknown, unknown>): void {
    if (Exit.isFailure(exit)) {
      const first = exit.cause.reasons[0]
      const error: unknown = first?._tag === "Die" ? first.defect : first?._tag === "Fail" ? first.error : undefined
      const text = this.lab.story.readable(error instanceof Error ? error.message : String(error))
      this.lab.story.says(actor.name, `fails: ${text}`)
      // A defect that the lab has not caused shows a wrong assumption of the code.
      if (first?._tag === "Die" && !isCausedHere(error))
        this.lab.report({
          invariant: "what the code takes for granted is true",
          detail: `${actor.name} fails: ${text}`
        })
    }
  }
}
