/**
 * What consumers do: slices of their partitions, and rounds over what they hold. It stands in for the broker's deal of partitions and for the
 * loops of Consumer, and hands it to the service's own steps.
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

/** How many records a consumer gets at once: two, as a dispatcher's batch. */
const sliceSize = 2

/** Few processes tell as much as many. */
export const maxConsumers = 2

/** The slice that a process has in hand. */
export interface Reading {
  readonly group: string
  readonly partitions: ReadonlyArray<number>
  /** The deal of partitions that it comes from: after the next one it is a zombie's. */
  readonly deal: number
}

export class ConsumerWork {
  private readonly lab: Scheduler
  /** Partitions whose last slice failed: they wait for a poll. */
  private readonly heldPartitions = new Set<string>()
  /** Partitions whose last slice failed: they share no transaction. */
  private readonly apart = new Set<string>()
  readonly troubles: Troubles
  /** The service's own subscriber, and one of the lab's where the case has it. */
  readonly subscribers: Array<Subscriber>
  /** How often the partitions were dealt anew. */
  private deal = 0
  private seen = ""

  constructor(lab: Scheduler) {
    this.lab = lab
    this.troubles = new Troubles((event) =>
      lab.story.named({ order: event.aggregateId, version: event.aggregateVersion })
    )
    this.subscribers = [analyticsOf(this.troubles)]
  }

  /** Whether slices of several partitions share a transaction. */
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

  /** What is committed was looked at: where what consumers know has changed since, their holds are looked at. */
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

  /** Something waits for its next try. */
  get hasRetries(): boolean {
    return this.lab.committed.inbox.holds.some(({ status }) => status === "retrying")
  }

  private get consumers(): ReadonlyArray<ConsumerProcess> {
    return this.lab.processes.filter((process) => process.role === "consumer")
  }

  /** Those that have partitions: who is frozen has lost them, and who leaves has given them up. */
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

  /** The next slice of the partition for this process, if it is its own and there is one. */
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
        // What failed together comes again one by one, and goes alone until it has succeeded.
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

  /** The slice comes again: our reader waits, and no other partition does. Thrown into the client's loop, it stops all of the member's. */
  private failed(process: ConsumerProcess, { deal, group, partitions }: Reading): void {
    for (const partition of partitions) process.positions.delete(`${group} ${partition}`)
    if (this.lab.environment.parts.clientLoop === "stops") {
      process.stands = true
      process.positions.clear()
      this.lab.story.says(process.name, "has its client crash, which reads nothing until it is started again")
    } else if (deal === this.deal && partitions.length === 1)
      // Those that failed together come again at once, each alone.
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
   * The members are dealt their partitions anew while `by` has a slice in hand, which it goes on with as a zombie: because another one joins, or
   * because it leaves itself. Who goes on first is the case's to say.
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
      // What it had in hand goes to another one, where there is one.
      const [partition = 0] = before?.partitions ?? []
      if (before !== undefined && this.ownerOf(before.group, partition) === by) this.deal += 1
      const owner = before === undefined ? undefined : this.ownerOf(before.group, partition)
      if (!how.zombieFirst && owner !== undefined) this.lab.turnTo(owner.actors[0]!)
    })
  }

  /** The groups' places go back by so many records, and what is read then is read anew. */
  rewind(records: number): void {
    for (const group of this.groups) this.lab.log.rewind(group, records)
    this.deal += 1
  }
}
