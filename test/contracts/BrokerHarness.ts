/** The harness that a `Broker` implementation gives the contract suite, and the suite's readers and writers. */
import { Context, Effect, Fiber, Queue, Schedule, type Scope } from "effect"
import { randomUUID } from "node:crypto"
import type { TopicReader } from "../../src/brokers/TopicReader.ts"
import type { GroupProgress } from "../../src/brokers/GroupProgress.ts"
import type { Broker, BrokerRecord, ConsumedRecord, Slice } from "../../src/brokers/Broker.ts"

/** A client with its own connections, like a separate process. */
export interface Member {
  readonly broker: Broker["Service"]
  /** How far groups have read. The lab's model has none. */
  readonly progress?: GroupProgress["Service"]
  /** Reads whole topics. The lab's model has none. */
  readonly topics?: TopicReader["Service"]
  /**
   * Cuts the member off: the broker receives no goodbye, no heartbeat and no commit. Its fibers may live on until the test's scope
   * closes.
   */
  readonly kill: Effect.Effect<void, never, Scope.Scope>
}

/** The parts of the suite that depend on the implementation. */
export class BrokerHarness extends Context.Service<
  BrokerHarness,
  {
    /** A new member. It leaves in an orderly way when the scope closes. */
    readonly member: Effect.Effect<Member, never, Scope.Scope>
    /** Restarts the broker: every connection breaks, and acknowledged records survive. */
    readonly restartBroker: Effect.Effect<void>
  }
>()("test/contracts/BrokerHarness") {}

/** The time limit of one wait: above a session timeout, a rebalance and a restart together. */
const patience = "60 seconds"

/** A record as a reader saw it. */
export interface Seen {
  readonly reader: string
  readonly partition: number
  readonly record: ConsumedRecord
}

/** `effect`, or a failure that names `what`. */
export const within = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.timeoutOrElse(effect, {
    duration: patience,
    orElse: () => Effect.die(new Error(`waited ${patience} for ${what}`))
  })

const encoder = new TextEncoder()
const decoder = new TextDecoder()
export const record = (value: string, key = "key"): BrokerRecord => ({ key, value: encoder.encode(value), headers: {} })
export const records = (values: ReadonlyArray<string>): [BrokerRecord, ...Array<BrokerRecord>] => {
  const [first, ...rest] = values.map((value) => record(value))
  return [first!, ...rest]
}
export const textOf = (seen: ConsumedRecord): string => decoder.decode(seen.value ?? new Uint8Array())
export const numbers = (from: number, count: number) =>
  Array.from({ length: count }, (_, index) => String(from + index))

export const newMember = BrokerHarness.use(({ member }) => member)

/** A new topic's name and that of a group. */
export const newTopic = Effect.fnUntraced(function* (member: Member, partitions = 1) {
  const topic = `contract-${randomUUID()}`
  // On a busy machine a response may be late, and asking again is harmless.
  const info = yield* Effect.retry(member.broker.ensureTopic(topic, partitions), {
    times: 10,
    schedule: Schedule.spaced("200 millis"),
    while: (error) => error._tag === "BrokerUnavailable"
  })
  return { topic, group: `${topic}-group`, info }
})

export const publish = (member: Member, topic: string, values: ReadonlyArray<string>, partition = 0) =>
  member.broker.publish({ topic, partition, records: records(values) })

/** A fiber that ends by itself only with a failure. */
type ConsumeFiber = Fiber.Fiber<never, unknown>

/** Starts a consumer as the service does: it is restarted after an outage. */
export const consume = (
  member: Member,
  options: { readonly topic: string; readonly group: string; readonly sliceSize?: number },
  handle: (slice: Slice) => Effect.Effect<void, unknown>
): Effect.Effect<ConsumeFiber, never, Scope.Scope> =>
  member.broker
    .consume({ sliceSize: 100, ...options }, handle)
    .pipe(
      Effect.retry({ schedule: Schedule.spaced("200 millis"), while: (error) => error._tag === "BrokerUnavailable" }),
      Effect.forkScoped
    )

/**
 * A consumer that commits each slice for which `commits` is true, and puts its records into a queue. By default it does so after the
 * commit: once a record is in the queue, its offset is committed. With `tells: "first"` it does so before the commit, for tests in which
 * the consumer may be cut off right after it.
 */
export const read = Effect.fnUntraced(function* (
  member: Member,
  options: { readonly topic: string; readonly group: string; readonly sliceSize?: number },
  {
    commits = () => true,
    into,
    reader = "reader",
    tells = "afterwards"
  }: {
    readonly reader?: string
    readonly into?: Queue.Queue<Seen>
    readonly commits?: (slice: Slice) => boolean
    readonly tells?: "first" | "afterwards"
  } = {}
) {
  const queue = into ?? (yield* Queue.unbounded<Seen>())
  const fiber = yield* consume(member, options, (slice) => {
    const tell = Queue.offerAll(
      queue,
      slice.records.map((one) => ({ reader, partition: slice.partition, record: one }))
    )
    const commit = Effect.suspend(() => (commits(slice) ? slice.commit : Effect.void))
    return tells === "first" ? Effect.andThen(tell, commit) : Effect.andThen(commit, tell)
  })
  return {
    stop: within("a consumer's end", Fiber.interrupt(fiber)),
    take: (count: number) => within(`${count} records`, Effect.replicateEffect(Queue.take(queue), count)),
    /** Everything up to the record with that value. */
    takeUntil: (value: string, partition = 0) =>
      within(
        `the record ${value}`,
        Effect.gen(function* () {
          const all: Array<Seen> = []
          while (true) {
            const seen = yield* Queue.take(queue)
            all.push(seen)
            if (seen.partition === partition && textOf(seen.record) === value) return all
          }
        })
      )
  }
})

/** Publishes, and retries while the broker is unavailable. The records may be duplicated. */
export const publishStubbornly = (member: Member, topic: string, values: ReadonlyArray<string>, partition = 0) =>
  within(
    "the broker's return",
    Effect.retry(publish(member, topic, values, partition), {
      schedule: Schedule.spaced("100 millis"),
      while: (error) => error._tag === "BrokerUnavailable"
    })
  )

/**
 * Publishes rounds of one record per partition until `expected` accepts the readers of a round. It is given a map from each partition to
 * the reader that saw its record.
 */
export const roundsUntil = Effect.fnUntraced(function* (
  member: Member,
  topic: string,
  partitions: number,
  queue: Queue.Queue<Seen>,
  expected: (owners: ReadonlyMap<number, string>) => boolean
) {
  while (true) {
    const round = randomUUID()
    for (let partition = 0; partition < partitions; partition++) yield* publish(member, topic, [round], partition)
    const owners = new Map<number, string>()
    while (owners.size < partitions) {
      const seen = yield* Queue.take(queue)
      if (textOf(seen.record) === round) owners.set(seen.partition, seen.reader)
    }
    if (expected(owners)) return
  }
})

export const countOf = (owners: ReadonlyMap<number, string>, reader: string) =>
  [...owners.values()].filter((owner) => owner === reader).length
