/**
 * The work of consumers: slices of their partitions, and rounds of attempts at their holds. This replaces the broker's assignment of partitions and the
 * loops of Consumer.ts, and calls the service's own steps.
 */
import { Array as EffectArray, Effect, Exit } from "effect"
import { ordersTopic } from "../../src/domain/Events.ts"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import type { Actor } from "./Actor.ts"
import { analyticsOf, ledgerOf, Troubles } from "./LabSubscribers.ts"
import { sliceOf } from "./ModelBroker.ts"
import { partitionCount } from "./Parts.ts"
import type { ConsumerProcess } from "./Processes.ts"
import type { Scheduler } from "./Scheduler.ts"

/** The most records in a slice: two, as in a dispatcher's batch. */
const sliceSize = 2

/** Two processes show every race that more would show. */
export const maxConsumers = 2

/** The slices that a process is applying. */
export interface Reading {
  readonly group: string
  readonly partitions: ReadonlyArray<number>
  /** The assignment of partitions that they come from. After the next assignment the process is a zombie. */
  readonly deal: number
}

export class ConsumerWork {
  private readonly lab: Scheduler
  /** Partitions whose last slice failed: they wait for a poll. */
  private readonly heldPartitions = new Set<string>()
  /** Partitions whose last slice failed. Their slices are applied alone. */
  private readonly apart = new Set<string>()
  readonly troubles: Troubles
  /** The service's own subscriber, and one of the lab's where the case has it. */
  readonly subscribers: Array<Subscriber>
  /** How often the partitions were assigned anew. */
  private deal = 0
  private seen = ""

  constructor(lab: Scheduler) {
    this.lab = lab
    this.troubles = new Troubles((event) =>
      lab.story.named({ order: event.aggregateId, version: event.aggregateVersion })
    )
    this.subscribers = [analyticsOf(this.troubles)]
  }

  /** Whether slices of several partitions are coalesced. */
  private get coalesces(): boolean {
    return this.lab.environment.settings.coalesces
  }

  get groups(): ReadonlyArray<string> {
    return this.subscribers.map(({ name }) => name)
  }

  /** From here on every consumer has a second subscriber, which begins at the topic's start. */
  subscribe(): boolean {
    if (this.subscribers.length > 1) return false
    this.subscribers.push(ledgerOf(this.troubles))
    return true
  }

  /** Has each consumer look at its holds again if the committed rows of the inbox have changed. */
  look(): void {
    const { effects, inbox } = this.lab.committed
    if (inbox.holds.length === 0) return
    const now = JSON.stringify([effects.length, inbox])
    if (now !== this.seen) for (const { looked } of this.consumers) looked.clear()
    this.seen = now
  }

  poll(): void {
    this.heldPartitions.clear()
    for (const process of this.consumers) {
      process.looked.clear()
      process.stands = false
    }
  }

  /** Whether a hold waits for its next attempt. */
  get hasRetries(): boolean {
    return this.lab.committed.inbox.holds.some(({ status }) => status === "retrying")
  }

  private get consumers(): ReadonlyArray<ConsumerProcess> {
    return this.lab.processes.filter((process) => process.role === "consumer")
  }

  /** The consumers that have partitions. A frozen one has lost them, and a leaving one has given them up. */
  get living(): ReadonlyArray<ConsumerProcess> {
    return this.consumers.filter((process) => !process.leaves && !process.actors.some((actor) => actor.frozen))
  }

  jobOf(process: ConsumerProcess, actor: Actor): (() => void) | undefined {
    if (process.leaves || process.actors.some((one) => one.frozen)) return undefined
    return actor === process.actors[0] ? this.sliceJob(process, actor) : this.heldJob(process, actor)
  }

  private ownerOf(group: string, partition: number): ConsumerProcess | undefined {
    const { living } = this
    const reads = ({ reading }: ConsumerProcess) =>
      reading?.group === group && reading.partitions.includes(partition) && reading.deal === this.deal
    return living.find(reads) ?? living[(partition + this.deal) % living.length]
  }

  /** The partition's next slice, if the partition belongs to this process and has one. */
  private sliceFor(process: ConsumerProcess, group: string, partition: number) {
    const key = `${group} ${partition}`
    if (this.heldPartitions.has(key) || this.ownerOf(group, partition) !== process) return undefined
    const known = process.positions.get(key)
    const { generation, next } = this.lab.log.claim(group, ordersTopic, partition, process.name)
    const from = known?.generation === generation ? known.next : next
    const slice = sliceOf(this.lab.log, { group, topic: ordersTopic, partition }, from, sliceSize, generation)
    return slice === undefined ? undefined : { key, slice, behind: { next: from + slice.records.length, generation } }
  }

  private sliceJob(process: ConsumerProcess, actor: Actor) {
    if (this.lab.log.away || process.stands) return undefined
    for (const subscriber of this.subscribers) {
      const group = subscriber.name
      const ready = Array.from({ length: partitionCount }, (_, partition) => this.sliceFor(process, group, partition))
        .filter((one) => one !== undefined)
        // Slices that failed together come again one by one, each alone until it succeeds.
        .filter(({ key }, index) => index === 0 || (this.coalesces && !this.apart.has(key)))
      const [first, ...rest] = ready
      if (first === undefined) continue
      const taken = [first, ...(this.apart.has(first.key) ? [] : rest)] as const
      return () => {
        const reading: Reading = { group, partitions: taken.map(({ slice }) => slice.partition), deal: this.deal }
        process.reading = reading
        this.lab.ambush("consumer", actor)
        const names = taken.map(({ slice: { partition, records } }) =>
          this.lab.topic.names(
            records,
            records.map(({ offset }) => `${ordersTopic}:${partition}:${offset}`)
          )
        )
        this.lab.story.says(
          actor.name,
          `reads ${names.join(" and ")}${group === this.groups[0] ? "" : ` for ${group}`}`
        )
        const slices = EffectArray.map(taken, ({ slice }) => ({
          ...slice,
          commit: Effect.andThen(actor.gate("commit the offset"), slice.commit)
        }))
        actor.begin(
          {
            title: "slices",
            effect: Effect.flatMap(ApplySlice, ({ run, runTogether }) =>
              slices.length === 1 ? run(subscriber, slices[0]) : runTogether(subscriber, slices)
            ).pipe(Effect.provideContext(process.context)),
            ended: (exit) => {
              process.reading = undefined
              for (const { behind, key } of taken) {
                if (Exit.isFailure(exit)) this.apart.add(key)
                else {
                  process.positions.set(key, behind)
                  this.apart.delete(key)
                }
              }
              if (Exit.isFailure(exit)) this.failed(process, reading)
              this.lab.work.tellFailure(actor, exit)
            }
          },
          process.context
        )
      }
    }
    return undefined
  }

  /** A failed slice comes again. The reader of its partition waits; where failures are thrown into the client's loop, all of the member's stop. */
  private failed(process: ConsumerProcess, { deal, group, partitions }: Reading): void {
    for (const partition of partitions) process.positions.delete(`${group} ${partition}`)
    if (this.lab.environment.parts.clientLoop === "stops") {
      process.stands = true
      process.positions.clear()
      this.lab.story.says(process.name, "has its client crash, which reads nothing until it is started again")
    } else if (deal === this.deal && partitions.length === 1)
      // Slices that failed together come again at once, each alone.
      for (const partition of partitions) this.heldPartitions.add(`${group} ${partition}`)
  }

  private heldJob(process: ConsumerProcess, actor: Actor) {
    const subscriber = this.subscribers.find(
      ({ name }) =>
        !process.looked.has(name) &&
        this.lab.committed.inbox.holds.some(({ consumer, status }) => consumer === name && status !== "dead")
    )
    if (subscriber === undefined) return undefined
    return () => {
      process.looked.add(subscriber.name)
      this.lab.ambush("held", actor)
      this.lab.story.says(actor.name, `looks at what ${subscriber.name} holds`)
      actor.begin(
        {
          title: "held",
          effect: Effect.flatMap(HoldRetries, (held) =>
            Effect.andThen(held.sweepGaps(subscriber.name), held.retryHeld(subscriber))
          ).pipe(Effect.provideContext(process.context)),
          ended: (exit) => this.lab.work.tellFailure(actor, exit)
        },
        process.context
      )
    }
  }

  /**
   * Assigns the partitions anew while `by` is applying a slice, which it goes on with as a zombie: because another member joins, or because it leaves
   * itself. The case decides which of the two goes on first.
   */
  rebalance(
    by: ConsumerProcess,
    how: { readonly leaves: boolean; readonly zombieFirst: boolean }
  ): Effect.Effect<void> {
    return Effect.gen({ self: this }, function* () {
      this.lab.story.says(by.name, how.leaves ? "leaves its group" : "loses its partition")
      by.leaves = how.leaves
      if (this.living.length < (how.leaves ? 1 : maxConsumers)) {
        const other = yield* this.lab.start("consumer")
        this.lab.story.says(other.name, "joins the group")
      }
      for (const group of this.groups) this.lab.log.dealAnew(group)
      const before = by.reading
      this.deal += 1
      // Its slices go to another member, if there is one.
      const [partition = 0] = before?.partitions ?? []
      if (before !== undefined && this.ownerOf(before.group, partition) === by) this.deal += 1
      const owner = before === undefined ? undefined : this.ownerOf(before.group, partition)
      if (!how.zombieFirst && owner !== undefined) this.lab.turnTo(owner.actors[0]!)
    })
  }

  /** Sets the groups' offsets back by so many records. */
  rewind(records: number): void {
    for (const group of this.groups) this.lab.log.rewind(group, records)
    this.deal += 1
  }
}
