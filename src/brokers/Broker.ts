/**
 * The part of a message broker that the outbox and the inbox need.
 *
 * Implementations: `KafkaBroker` (Apache Kafka through kafkajs) and `EmbeddedBroker` (a durable log in Postgres). An implementation is
 * right when it passes the contract suite, test/contracts/Broker.ts.
 */
import { Context, type Effect, Schema, type SubscriptionRef } from "effect"
import * as Outages from "../platform/Outages.ts"

/** A record to be appended. The value's bytes and the headers reach the consumer unchanged. */
export interface BrokerRecord {
  /** Records with equal keys are in one partition, in the order they were appended. */
  readonly key: string
  readonly value: Uint8Array
  readonly headers: Readonly<Record<string, string>>
}

/** A record as a consumer gets it. */
export interface ConsumedRecord {
  readonly offset: bigint
  /** Null where a foreign producer wrote none. */
  readonly key: string | null
  /** Null is Kafka's tombstone, which only foreign producers write. */
  readonly value: Uint8Array | null
  readonly headers: Readonly<Record<string, string>>
  /** When it was appended, by the broker's clock or its producer's. Absent where the broker does not tell. */
  readonly timestampMillis?: number
}

/** Records that are appended together, to one partition. */
export interface Batch {
  readonly topic: string
  readonly partition: number
  readonly records: readonly [BrokerRecord, ...ReadonlyArray<BrokerRecord>]
}

/** Records that a consumer gets together: of one partition, in offset order, following the last slice without a gap. */
export interface Slice {
  readonly topic: string
  readonly partition: number
  readonly records: readonly [ConsumedRecord, ...ReadonlyArray<ConsumedRecord>]
  /**
   * Commits the offset after the slice's last record for the group: soon, and before the consumer ends in an orderly way. When the
   * partition has been assigned to another member meanwhile, it succeeds and changes nothing.
   */
  readonly commit: Effect.Effect<void, BrokerUnavailable>
}

/** A topic as the broker describes it. A field that it does not tell is absent. */
export interface TopicInfo {
  readonly topic: string
  readonly partitions: number
  /** The largest batch that the topic accepts, in bytes as the broker counts them. */
  readonly maxMessageBytes: number
  /** Its name at the broker, where that differs, for operators. */
  readonly wireName?: string
  readonly retention?: TopicRetention
  /** In which form it keeps batches: `uncompressed`, or what producers made of them. */
  readonly compression?: string
  readonly replication?: TopicReplication
}

/** How long a topic keeps a record. */
export interface TopicRetention {
  /** Whether it is compacted: it keeps only the newest record of each key. */
  readonly compacts: boolean
  /** The shortest time that it keeps a record, in milliseconds; `Infinity` for ever. */
  readonly millis: number
  /** A record is deleted with its segment, which spans up to so many milliseconds. */
  readonly segmentMillis: number
  /** The most bytes of a partition: above that it drops the oldest records, however young. Absent where nothing is dropped by size. */
  readonly bytes?: number
}

/** How a topic replicates its records. */
export interface TopicReplication {
  /** Replicas of each partition; where they differ, the smallest number. */
  readonly copies: number
  /** How many replicas must have a record before it is acknowledged. */
  readonly minInSync: number
  /** Whether a replica that lags behind may become the leader, which drops acknowledged records. */
  readonly uncleanElection: boolean
  /** The brokers of the cluster, as `host:port`. Absent where the broker does not tell. */
  readonly brokers?: ReadonlyArray<string>
}

/** The partition count of a topic that is created. */
export const TopicSettings = Context.Reference<{ readonly partitions: number }>("paid-once/brokers/TopicSettings", {
  // Eight consumers of a group can work in parallel. It divides the 64 lanes.
  defaultValue: () => ({ partitions: 8 })
})

/** The rule for topic names, for every broker: Kafka's own (`Topic.validate` of its clients). */
export const topicName = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/

/** The broker is unreachable or did not respond in time. A batch that was sent may be stored or not. Says nothing about the data. */
export class BrokerUnavailable extends Schema.TaggedError<BrokerUnavailable>()("BrokerUnavailable", {
  operation: Schema.String,
  cause: Schema.Defect(),
  /** Where it refuses this process: why, and what an operator has to change. */
  refusal: Schema.optionalKey(Schema.String)
}) {
  override get message() {
    return `broker unavailable: ${this.operation}: ${this.refusal ?? Outages.reasonOf(this.cause)}`
  }
  get [Outages.outage](): Outages.Outage {
    const { refusal } = this
    return refusal === undefined
      ? { subject: "the broker", reason: Outages.reasonOf(this.cause) }
      : { subject: "the broker", reason: refusal, kind: refusal }
  }
}

/** The broker responds and refuses the topic: it does not exist, access is denied, a clock is wrong. An operator can repair it. */
export class TopicUnavailable extends Schema.TaggedError<TopicUnavailable>()("TopicUnavailable", {
  topic: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `topic ${this.topic} is unavailable: ${this.reason}`
  }
  get [Outages.outage](): Outages.Outage {
    return { subject: `topic ${this.topic}`, reason: this.reason, kind: this.reason }
  }
}

/** The broker refuses the batch: too large, or invalid. Nothing of it was appended. */
export class MessageRejected extends Schema.TaggedError<MessageRejected>()("MessageRejected", {
  topic: Schema.String,
  partition: Schema.Int,
  reason: Schema.String,
  /** The batch is too large. With several records, each may still fit by itself. */
  isTooLarge: Schema.optionalKey(Schema.Boolean)
}) {
  override get message() {
    return `topic ${this.topic}, partition ${this.partition}: message rejected: ${this.reason}`
  }
}

export type PublishError = BrokerUnavailable | TopicUnavailable | MessageRejected

/** How a member of a group reads a topic. */
export interface ConsumeOptions {
  /** Members with the same group share the topic's partitions; each partition has one reader at a time. */
  readonly group: string
  readonly topic: string
  /** The most records in a slice. */
  readonly sliceSize: number
}

export class Broker extends Context.Service<
  Broker,
  {
    /** `kafka` or `embedded`: for logs and health. */
    readonly name: string
    /** Whether the broker took part in the last exchange. For health and metrics only. */
    readonly available: SubscriptionRef.SubscriptionRef<boolean>
    /** Creates the topic where it is missing and the settings allow it, and describes it. */
    readonly ensureTopic: (
      topic: string,
      partitions: number
    ) => Effect.Effect<TopicInfo, BrokerUnavailable | TopicUnavailable>
    /**
     * Appends the batch to its partition, whole and in order, and returns the offset of its first record once the broker has stored it
     * durably. The records take consecutive offsets.
     *
     * After `BrokerUnavailable` the batch is in the log once or not at all. Publishing it again may duplicate it, as a whole. An
     * implementation never retries by itself.
     */
    readonly publish: (batch: Batch) => Effect.Effect<{ readonly baseOffset: bigint }, PublishError>
    /**
     * Joins the group and passes slices to `handle` until it is interrupted; then waits for the slices in flight, and leaves the group. Fails when an
     * outage lasts longer than the client's own retries: the caller starts it again.
     *
     * **Details**
     *
     * - Slices of a partition are handled one at a time, in offset order. Partitions are handled concurrently.
     * - A new group starts at the first record of the topic.
     * - Records that were not committed are delivered again: to this member after a restart, to another one after a rebalance.
     * - `handle` decides when to commit. A commit covers all earlier records of the partition.
     * - When `handle` fails, the same records are delivered again after a jittered delay, before any later record of that partition. The other
     *   partitions continue.
     */
    readonly consume: <E, R>(
      options: ConsumeOptions,
      handle: (slice: Slice) => Effect.Effect<void, E, R>
    ) => Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R>
    /**
     * Succeeds when any server of the broker responds to a question about the topic, whatever the response: the broker is reachable from
     * this process. Absent where a process that reaches the database reaches the broker.
     */
    readonly reach?: (topic: string) => Effect.Effect<void, BrokerUnavailable>
    /**
     * Does what a send of the batch does before its request: connects, asks where the partitions are, and encodes. Appends nothing, and is no exchange
     * for {@link available}. Absent where a send needs no connection of its own.
     */
    readonly rehearse?: (batch: Batch) => Effect.Effect<void, BrokerUnavailable>
  }
>()("paid-once/brokers/Broker") {}
