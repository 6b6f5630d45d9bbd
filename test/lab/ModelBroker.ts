/**
 * A small message broker in memory. It keeps the contract (ModelBroker.test.ts), and fails on purpose as real brokers do by accident: it is
 * unavailable, loses an ack, appends late, refuses.
 */
import { Effect, Layer, SubscriptionRef } from "effect"
import {
  type Batch,
  Broker,
  BrokerUnavailable,
  type ConsumedRecord,
  MessageRejected,
  type PublishError,
  type Slice,
  TopicUnavailable
} from "../../src/brokers/Broker.ts"
import { batchBytes } from "../../src/brokers/Envelope.ts"

/** Kafka's default of message.max.bytes. */
const maxMessageBytes = 1_048_588

/** What happens to the next publish. */
export type PublishFault = "lose ack" | "append late" | "reject"

interface Place {
  next: number
  generation: number
  owner: string
}

/** The broker's state, which all members share. */
export class ModelLog {
  away = false
  /** Every send is refused, as if the topic's size limit had been lowered. */
  refusesAll = false
  readonly publishFaults: Array<PublishFault> = []
  /** Sends that timed out at their sender. They are appended when the scheduler says so. */
  readonly late: Array<{ readonly title: string; readonly land: () => void }> = []
  private readonly topics = new Map<string, ReadonlyArray<Array<ConsumedRecord>>>()
  private readonly places = new Map<string, Place>()
  private moved = false

  ensureTopic(topic: string, partitions: number) {
    const log = this.topics.get(topic) ?? Array.from({ length: partitions }, () => [])
    this.topics.set(topic, log)
    return { topic, partitions: log.length, maxMessageBytes }
  }

  partitions(topic: string): ReadonlyArray<ReadonlyArray<ConsumedRecord>> {
    return this.topics.get(topic) ?? []
  }

  /** Appends a record of another service, with any value. */
  appendForeign(topic: string, partition: number, record: Omit<ConsumedRecord, "offset">): ConsumedRecord {
    const log = this.topics.get(topic)![partition]!
    const appended = { ...record, offset: BigInt(log.length) }
    log.push(appended)
    return appended
  }

  append({ partition, records, topic }: Batch): bigint | PublishError {
    const log = this.topics.get(topic)?.[partition]
    if (log === undefined) return new TopicUnavailable({ topic, reason: `it has no partition ${partition}` })
    if (batchBytes(records) > maxMessageBytes) {
      return new MessageRejected({ topic, partition, reason: "the batch is too large" })
    }
    const base = BigInt(log.length)
    records.forEach((record, index) => log.push({ ...record, offset: base + BigInt(index) }))
    return base
  }

  private place(group: string, topic: string, partition: number): Place {
    const key = `${group} ${topic} ${partition}`
    const place = this.places.get(key) ?? { next: 0, generation: 0, owner: "" }
    this.places.set(key, place)
    return place
  }

  /** Whether a group's offset has moved since the last call. */
  takeMoved(): boolean {
    const moved = this.moved
    this.moved = false
    return moved
  }

  committed(group: string, topic: string, partition: number): number {
    return this.place(group, topic, partition).next
  }

  /** A rebalance of the group: it fences the commits of all readers so far, and each partition is claimed again. */
  dealAnew(group: string): void {
    for (const [key, place] of this.places) {
      if (!key.startsWith(`${group} `)) continue
      place.owner = ""
      place.generation += 1
    }
  }

  /** Sets the group's offsets back by `records`, at most to the start, as an operator does. */
  rewind(group: string, records: number): void {
    this.dealAnew(group)
    for (const [key, place] of this.places)
      if (key.startsWith(`${group} `)) place.next = Math.max(0, place.next - records)
  }

  /** Makes `owner` the partition's reader, and fences the commits of earlier owners. Returns the offset at which it goes on. */
  claim(
    group: string,
    topic: string,
    partition: number,
    owner: string
  ): { readonly next: number; readonly generation: number } {
    const place = this.place(group, topic, partition)
    if (place.owner !== owner) {
      place.owner = owner
      place.generation += 1
    }
    return { next: place.next, generation: place.generation }
  }

  commit(group: string, topic: string, partition: number, generation: number, next: number): void {
    const place = this.place(group, topic, partition)
    if (place.generation !== generation || next <= place.next) return
    place.next = next
    this.moved = true
  }
}

export const unavailable = (operation: string, reason: string) =>
  new BrokerUnavailable({ operation, cause: new Error(reason) })

/** The slice from `from` on, as the group's reader of that generation gets it; undefined if there is none. */
export const sliceOf = (
  log: ModelLog,
  at: { readonly group: string; readonly topic: string; readonly partition: number },
  from: number,
  size: number,
  generation: number
): Slice | undefined => {
  const [first, ...rest] = log.partitions(at.topic)[at.partition]?.slice(from, from + size) ?? []
  if (first === undefined) return undefined
  return {
    topic: at.topic,
    partition: at.partition,
    records: [first, ...rest],
    commit: Effect.suspend(() => {
      if (log.away) return Effect.fail(unavailable("commit", "the broker is away"))
      log.commit(at.group, at.topic, at.partition, generation, from + 1 + rest.length)
      return Effect.void
    })
  }
}

/** One send, with a gate before it and one before its ack. */
export const publishThrough =
  (log: ModelLog, gate: (label: string) => Effect.Effect<void>, title: (batch: Batch) => string) => (batch: Batch) =>
    Effect.gen(function* (): Effect.fn.Return<{ readonly baseOffset: bigint }, PublishError> {
      yield* gate(`publish ${title(batch)}`)
      if (log.away) return yield* unavailable("publish", "the broker is away")
      const fault = log.refusesAll ? "reject" : log.publishFaults.shift()
      if (fault === "reject")
        return yield* new MessageRejected({
          topic: batch.topic,
          partition: batch.partition,
          reason: "refused on purpose"
        })
      if (fault === "append late") {
        log.late.push({ title: title(batch), land: () => void log.append(batch) })
        return yield* unavailable("publish", "no answer in time")
      }
      const base = log.append(batch)
      if (typeof base !== "bigint") return yield* base
      yield* gate(`ack of ${title(batch)}`)
      if (fault === "lose ack" || log.away) return yield* unavailable("publish", "the ack was lost")
      return { baseOffset: base }
    })

/** The groups' members in the order in which they joined. Each partition belongs to one of them. */
export class ModelGroups {
  private readonly groups = new Map<string, Array<string>>()
  private readonly reading = new Map<string, string>()

  join(group: string, member: string) {
    const members = this.groups.get(group) ?? []
    this.groups.set(group, [...members, member].toSorted())
  }
  leave(group: string, member: string) {
    this.groups.set(
      group,
      (this.groups.get(group) ?? []).filter((one) => one !== member)
    )
    for (const [key, reader] of this.reading)
      if (reader === member && key.startsWith(`${group} `)) this.reading.delete(key)
  }
  /** Takes the partition if the assignment gives it to the member and nobody reads it any more. */
  take(group: string, partition: number, member: string): boolean {
    const members = this.groups.get(group) ?? []
    const key = `${group} ${partition}`
    const mine = members[partition % members.length] === member
    const reader = this.reading.get(key)
    if (mine && (reader === undefined || reader === member)) {
      this.reading.set(key, member)
      return true
    }
    if (reader === member) this.reading.delete(key)
    return false
  }
}

/** The poll of a member, and its wait after a failure: in memory a poll is cheap enough. */
const lookMillis = 2

let memberCount = 0

/** A member in real time, for the contract suite. In a case the scheduler hands out slices itself. */
export const member = (
  log: ModelLog,
  groups: ModelGroups
): Effect.Effect<{
  readonly broker: Broker["Service"]
  readonly kill: Effect.Effect<void>
}> =>
  Effect.gen(function* () {
    const name = `member-${String(memberCount++).padStart(6, "0")}`
    const available = yield* SubscriptionRef.make(true)
    let killed = false
    const joined = new Set<string>()
    const reachable = (operation: string) =>
      Effect.suspend(() =>
        killed
          ? Effect.interruptible(Effect.never)
          : Effect.andThen(
              SubscriptionRef.set(available, !log.away),
              log.away ? Effect.fail(unavailable(operation, "the broker is away")) : Effect.void
            )
      )
    const send = publishThrough(
      log,
      () => Effect.void,
      ({ topic }) => topic
    )

    const readPartition = <E, R>(
      at: { readonly group: string; readonly topic: string; readonly partition: number },
      sliceSize: number,
      handle: (slice: Slice) => Effect.Effect<void, E, R>
    ) => {
      let position: { next: number; readonly generation: number } | undefined
      const look = Effect.gen(function* () {
        yield* reachable("consume")
        if (!groups.take(at.group, at.partition, name)) {
          position = undefined
          return yield* Effect.sleep(lookMillis)
        }
        position ??= { ...log.claim(at.group, at.topic, at.partition, name) }
        const slice = sliceOf(log, at, position.next, sliceSize, position.generation)
        if (slice === undefined) return yield* Effect.sleep(lookMillis)
        const exit = yield* Effect.exit(handle({ ...slice, commit: Effect.andThen(reachable("commit"), slice.commit) }))
        if (exit._tag === "Success") position.next += slice.records.length
        else yield* Effect.sleep(lookMillis)
      })
      // A slice in progress ends before an interruption takes effect.
      return Effect.forever(Effect.andThen(Effect.yieldNow, Effect.uninterruptible(look)))
    }

    return {
      kill: Effect.sync(() => {
        killed = true
        for (const group of joined) groups.leave(group, name)
      }),
      broker: Broker.of({
        name: "model",
        available,
        ensureTopic: (topic, partitions) =>
          Effect.map(reachable("ensureTopic"), () => log.ensureTopic(topic, partitions)),
        publish: (batch) => Effect.andThen(reachable("publish"), send(batch)),
        consume: (options, handle) =>
          Effect.gen(function* () {
            yield* reachable("consume")
            const count = log.partitions(options.topic).length
            if (count === 0) return yield* new TopicUnavailable({ topic: options.topic, reason: "it does not exist" })
            groups.join(options.group, name)
            joined.add(options.group)
            return yield* Effect.forEach(
              Array.from({ length: count }, (_, partition) => partition),
              (partition) => readPartition({ ...options, partition }, options.sliceSize, handle),
              { concurrency: "unbounded", discard: true }
            ).pipe(Effect.andThen(Effect.never), Effect.ensuring(Effect.sync(() => groups.leave(options.group, name))))
          })
      })
    }
  })

/** The broker as an actor sees it: sends go through the scheduler, and the scheduler consumes. */
export const layerActor = (
  log: ModelLog,
  gate: (label: string) => Effect.Effect<void>,
  title: (batch: Batch) => string
): Layer.Layer<Broker> =>
  Layer.effect(
    Broker,
    Effect.map(SubscriptionRef.make(true), (available) =>
      Broker.of({
        name: "model",
        available,
        ensureTopic: (topic, partitions) =>
          Effect.suspend(() =>
            log.away
              ? Effect.fail(unavailable("ensureTopic", "the broker is away"))
              : Effect.succeed(log.ensureTopic(topic, partitions))
          ),
        publish: publishThrough(log, gate, title),
        consume: () => Effect.die(new Error("in the lab the scheduler hands out the slices"))
      })
    )
  )
