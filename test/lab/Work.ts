/**
 * What there is to do: which request, lane or partition an idle actor takes next. It stands in for what deals work out in the service
 * (LaneWorkers, Shares, Consumer), and hands it to the service's own steps.
 */
import { Effect, Exit } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import { SqlError } from "effect/sql"
import { analytics } from "../../src/application/subscribers/Analytics.ts"
import { ordersTopic } from "../../src/domain/Events.ts"
import { ApplySlice } from "../../src/messaging/inbox/ApplySlice.ts"
import { DependencyDown, type Subscriber } from "../../src/messaging/inbox/Subscriber.ts"
import { BrokerUnavailable, MessageRejected, TopicUnavailable } from "../../src/messaging/broker/Broker.ts"
import { Dispatcher } from "../../src/messaging/outbox/Dispatcher.ts"
import { Lane } from "../../src/messaging/outbox/Lane.ts"
import { OutboxQueue } from "../../src/messaging/outbox/OutboxQueue.ts"
import type { Envelope } from "../../src/messaging/Envelope.ts"
import { Transaction } from "../../src/platform/database/Transaction.ts"
import { type Actor, usedLanes } from "./Actor.ts"
import { sliceOf } from "./ModelBroker.ts"
import { partitionCount } from "./Parts.ts"
import type { ConsumerProcess, DispatcherProcess, Process } from "./Processes.ts"
import type { Scheduler } from "./Scheduler.ts"
import { TaskWork } from "./TaskWork.ts"

/** How many records a consumer gets at once: two, as a dispatcher's batch. */
const sliceSize = 2

/** The subscriber of the service, which leaves a trace of each effect for the oracle, and fails when it is told to. */
const subscriberOf = (nextFailure: () => "before" | "after" | undefined): Subscriber => {
  const handleMany = Effect.fnUntraced(function* (events: NonEmptyReadonlyArray<Envelope>) {
    const failure = nextFailure()
    if (failure === "before") return yield* new DependencyDown({ reason: "it fails on purpose" })
    yield* analytics.handleMany?.(events) ?? Effect.void
    const { sql } = yield* Transaction
    yield* sql`
      INSERT INTO lab_effects (aggregate_id, aggregate_version, event_id)
      SELECT * FROM unnest(${events.map((event) => event.aggregateId)}::text[],
                           ${events.map((event) => event.aggregateVersion)}::int4[],
                           ${events.map((event) => event.eventId)}::uuid[])`
    if (failure === "after") return yield* new DependencyDown({ reason: "it fails on purpose" })
  })
  return { ...analytics, handle: (event) => handleMany([event]), handleMany }
}

/** The lab ends sessions, makes transactions collide and effects fail, and takes the broker away or has it refuse. */
const isCausedHere = (error: unknown) =>
  (SqlError.isSqlError(error) &&
    ["ConnectionError", "SerializationError", "DeadlockError"].includes(error.reason._tag)) ||
  error instanceof DependencyDown ||
  error instanceof BrokerUnavailable ||
  error instanceof TopicUnavailable ||
  error instanceof MessageRejected

export class Work {
  private readonly lab: Scheduler
  /** Lanes that have something new, or that a poll is to look at. */
  private readonly wokenLanes = new Set<number>()
  /** Partitions whose last slice failed: they wait for a poll. */
  private readonly heldPartitions = new Set<number>()

  /** The next dispatcher that has nothing to do raises the floors. */
  floorsDue = false
  /** The effects that are still to fail, before they write or after it. */
  readonly handlerFailures: Array<"before" | "after"> = []
  private readonly subscriber = subscriberOf(() => this.handlerFailures.shift())

  readonly tasks: TaskWork

  constructor(lab: Scheduler) {
    this.lab = lab
    this.tasks = new TaskWork(lab)
  }

  /** There is something new in the lane. */
  wake(lane: number): void {
    this.wokenLanes.add(lane)
    for (const actor of this.lab.actors) actor.lookedAt.delete(lane)
  }

  /** Every lane with rows, every partition and all tasks are looked at again. */
  pollAll(): void {
    for (const { lane } of this.lab.committed.queue) this.wake(lane)
    this.heldPartitions.clear()
    this.tasks.poll()
  }

  /** Who works on the share: whoever is at it now and not frozen, else the living ones by turns. */
  private owner<P extends Process>(
    processes: ReadonlyArray<P>,
    share: number,
    isAt: (process: P) => boolean
  ): P | undefined {
    const living = processes.filter((process) => !process.actors.some((actor) => actor.frozen))
    return living.find(isAt) ?? living[share % living.length]
  }

  /** What an idle actor would do next, if there is anything. */
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
                // What an operator has done is looked at as if it were due: signals are not under the lab.
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
        return this.sliceJob(process, actor)
      case "worker":
        return this.tasks.jobOf(process, actor)
    }
  }

  /** Two rounds: one notes how far the numbers go, the other looks where the lanes begin once all who had them have ended. */
  private floorsJob(process: DispatcherProcess, actor: Actor) {
    if (!this.floorsDue) return undefined
    return () => {
      this.floorsDue = false
      this.lab.story.says(actor.name, "raises the lanes' floors")
      actor.begin(
        {
          title: "floors",
          effect: Effect.flatMap(OutboxQueue, (queue) =>
            Effect.repeat(queue.raiseFloors(usedLanes.map((lane) => Lane.make(lane))), { times: 1 })
          ).pipe(Effect.provideContext(process.context)),
          ended: (exit) => this.tellFailure(actor, exit)
        },
        process.context
      )
    }
  }

  private drainJob(process: DispatcherProcess, actor: Actor) {
    const dispatchers = this.lab.processes.filter((one) => one.role === "dispatcher")
    const isAt = (one: DispatcherProcess, lane: number) =>
      one.actors.some((other) => other.job?.title === `lane ${lane}`)
    const { lanesHaveOwners, workersPerLane } = this.lab.environment.parts
    const lane = [...this.wokenLanes]
      .toSorted((a, b) => a - b)
      .find((candidate) => {
        if (actor.lookedAt.has(candidate)) return false
        const owns = !lanesHaveOwners || this.owner(dispatchers, candidate, (one) => isAt(one, candidate)) === process
        return (
          owns && process.actors.filter((other) => other.job?.title === `lane ${candidate}`).length < workersPerLane
        )
      })
    if (lane === undefined) return undefined
    return () => {
      if (this.lab.committed.queue.some((row) => row.lane === lane)) this.lab.ambush("dispatcher", actor)
      // Where several may work on a lane, the same wake-up is for each of them.
      if (lanesHaveOwners && workersPerLane === 1) this.wokenLanes.delete(lane)
      else actor.lookedAt.add(lane)
      actor.begin(
        {
          title: `lane ${lane}`,
          effect: Effect.flatMap(Dispatcher, (dispatcher) =>
            this.lab.committed.parked.includes(lane)
              ? Effect.andThen(dispatcher.retryHeld(Lane.make(lane)), dispatcher.drainOnce(Lane.make(lane)))
              : dispatcher.drainOnce(Lane.make(lane))
          ).pipe(Effect.provideContext(process.context)),
          ended: (exit) => {
            if (
              Exit.isSuccess(exit) &&
              exit.value === "more" &&
              this.lab.committed.queue.some((row) => row.lane === lane)
            )
              this.wake(lane)
            this.tellFailure(actor, exit)
          }
        },
        process.context
      )
    }
  }

  private sliceJob(process: ConsumerProcess, actor: Actor) {
    if (this.lab.log.away) return undefined
    const consumers = this.lab.processes.filter((one) => one.role === "consumer")
    const isAt = (one: ConsumerProcess, partition: number) =>
      one.actors.some((other) => other.job?.title === `partition ${partition}`)
    for (let partition = 0; partition < partitionCount; partition++) {
      if (this.heldPartitions.has(partition) || isAt(process, partition)) continue
      if (this.owner(consumers, partition, (one) => isAt(one, partition)) !== process) continue
      const at = { group: this.subscriber.name, topic: ordersTopic, partition }
      const known = process.positions.get(partition)
      const place = this.lab.log.claim(at.group, at.topic, partition, process.name)
      const from = known?.generation === place.generation ? known.next : place.next
      const slice = sliceOf(this.lab.log, at, from, sliceSize, place.generation)
      if (slice === undefined) continue
      return () => {
        this.lab.ambush("consumer", actor)
        this.lab.story.says(actor.name, `reads ${this.lab.topic.names(slice.records.map((record) => record.value))}`)
        actor.begin(
          {
            title: `partition ${partition}`,
            effect: Effect.flatMap(ApplySlice, (applySlice) =>
              applySlice.run(this.subscriber, {
                ...slice,
                commit: Effect.andThen(actor.gate("commit the offset"), slice.commit)
              })
            ).pipe(Effect.provideContext(process.context)),
            ended: (exit) => {
              if (Exit.isSuccess(exit))
                process.positions.set(partition, { next: from + slice.records.length, generation: place.generation })
              else {
                process.positions.delete(partition)
                this.heldPartitions.add(partition)
              }
              this.tellFailure(actor, exit)
            }
          },
          process.context
        )
      }
    }
    return undefined
  }

  tellFailure(actor: Actor, exit: Exit.Exit<unknown, unknown>): void {
    if (Exit.isFailure(exit)) {
      const first = exit.cause.reasons[0]
      const error: unknown = first?._tag === "Die" ? first.defect : first?._tag === "Fail" ? first.error : undefined
      const text = this.lab.story.readable(error instanceof Error ? error.message : String(error))
      this.lab.story.says(actor.name, `fails: ${text}`)
      // Any defect that is not the lab's own doing is a belief of the code that proved wrong.
      if (first?._tag === "Die" && !isCausedHere(error))
        this.lab.report({
          invariant: "what the code takes for granted is true",
          detail: `${actor.name} fails: ${text}`
        })
    }
  }
}
