/**
 * What the outbox and the inbox need of a message broker, and no more.
 *
 * Implementations: `KafkaBroker` (Apache Kafka through kafkajs) and `EmbeddedBroker` (a durable log in Postgres). Both pass
 * test/contracts/Broker.ts, and a third one is right when it does.
 */
import { Context, type Effect, Inspectable, Schema, type SubscriptionRef } from "effect"

/** A record to be appended. The value's bytes and the headers reach the consumer unchanged. */
export interface BrokerRecord {
  /** Records with equal keys are in one partition, in the order they were appended. */
  readonly key: string
  readonly value: Uint8Array
  readonly headers: Readonly<Record<string, string>>
}

/** Where a record came from, on top of what was appended. */
export interface ConsumedRecord {
  readonly offset: bigint
  /** Null when a foreign producer wrote none. */
  readonly key: string | null
  /** Null is Kafka's tombstone; ours never are. */
  readonly value: Uint8Array | null
  readonly headers: Readonly<Record<string, string>>
}

/** One append: all of it goes to one partition, as one batch. */
export interface Batch {
  readonly topic: string
  readonly partition: number
  readonly records: readonly [BrokerRecord, ...ReadonlyArray<BrokerRecord>]
}

/** What a consumer gets at once: records of one partition in offset order, following the last slice without a gap. */
export interface Slice {
  readonly topic: string
  readonly partition: number
  readonly records: readonly [ConsumedRecord, ...ReadonlyArray<ConsumedRecord>]
  /**
   * Commits the group's place behind this slice's last record: soon, and before the consumer has ended in an orderly way. When the
   * partition has meanwhile gone to another member it changes nothing and succeeds: the new owner's place stands.
   */
  readonly commit: Effect.Effect<void, BrokerUnavailable>
}

/** What is known of a topic. */
export interface TopicInfo {
  readonly topic: string
  readonly partitions: number
  /** The largest batch the topic takes, in bytes as the broker counts them. */
  readonly maxMessageBytes: number
  /** Its name at the broker, where that is another one: what an operator has to type. */
  readonly wireName?: string
  /** How long it keeps records. Absent where the broker does not say. */
  readonly retention?: TopicRetention
  /** How safely it keeps them. Absent where the broker has no copies of its own, or does not say. */
  readonly replication?: TopicReplication
}

/** How long a topic keeps a record. */
export interface TopicRetention {
  /** Whether it throws away all but the newest record of a key. */
  readonly compacts: boolean
  /** How long it keeps a record at least, in milliseconds; `Infinity` for ever. */
  readonly millis: number
  /** A record goes with its segment, whose last one may be so much younger. */
  readonly segmentMillis: number
}

/** How safely a topic keeps a record. */
export interface TopicReplication {
  /** Copies of each partition; where they differ, of the worst one. */
  readonly copies: number
  /** How many of them have to have a record before it is acknowledged. */
  readonly minInSync: number
  /** Whether a copy that lags behind may become the leader, and with it drop what was acknowledged. */
  readonly uncleanElection: boolean
}

/** How many partitions a topic gets that is missing and may be made. */
export const TopicSettings = Context.Reference<{ readonly partitions: number }>("paid-once/brokers/TopicSettings", {
  // Enough for eight consumers of a group side by side; it divides the 64 lanes.
  defaultValue: () => ({ partitions: 8 })
})

/** What may be a topic's name: Kafka's own rule (`Topic.validate` of its clients), for every broker. */
export const topicName = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/

/** The broker can't be reached, or did not answer in time: what was sent may or may not be there. Says nothing about the data. */
export class BrokerUnavailable extends Schema.TaggedError<BrokerUnavailable>()("BrokerUnavailable", {
  operation: Schema.String,
  cause: Schema.Defect()
}) {
  override get message() {
    return `broker unavailable: ${this.operation}: ${describe(this.cause)}`
  }
}

/** The broker is there and refuses this topic: it does not exist, access is denied, a clock is off. An operator can mend it. */
export class TopicUnavailable extends Schema.TaggedError<TopicUnavailable>()("TopicUnavailable", {
  topic: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `topic ${this.topic} is unavailable: ${this.reason}`
  }
}

/** The broker refuses what is in the batch: too large, or invalid. Nothing of the batch was appended. */
export class MessageRejected extends Schema.TaggedError<MessageRejected>()("MessageRejected", {
  topic: Schema.String,
  partition: Schema.Int,
  reason: Schema.String,
  /** It is the size: of the batch, where it has several records. */
  isTooLarge: Schema.optionalKey(Schema.Boolean)
}) {
  override get message() {
    return `topic ${this.topic}, partition ${this.partition}: message rejected: ${this.reason}`
  }
}

export type PublishError = BrokerUnavailable | TopicUnavailable | MessageRejected

const describe = (cause: unknown): string =>
  cause instanceof Error ? cause.message : Inspectable.toStringUnknown(cause)

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
    /** Whether the last exchange with the broker went well. A hint for health and metrics. */
    readonly available: SubscriptionRef.SubscriptionRef<boolean>
    /** Makes the topic if it is missing and the broker is set to; tells what it is like. */
    readonly ensureTopic: (
      topic: string,
      partitions: number
    ) => Effect.Effect<TopicInfo, BrokerUnavailable | TopicUnavailable>
    /**
     * Appends the batch to its partition, whole and in order, and returns the offset of its first record once the broker has
     * stored it durably. The records take consecutive offsets.
     *
     * After `BrokerUnavailable` the batch may be in the log, once; sending it again may duplicate it, as a whole. It is never
     * sent again by itself.
     */
    readonly publish: (batch: Batch) => Effect.Effect<{ readonly baseOffset: bigint }, PublishError>
    /**
     * Joins the group and hands slices to `handle` until it is interrupted; then lets the slices under way end, and leaves the
     * group. Fails when the broker is gone for longer than the client can ride out: the caller starts it again.
     *
     * **Details**
     *
     * - One slice of a partition at a time, in offset order; partitions side by side.
     * - A new group starts at the first record of the topic.
     * - What was not committed comes again: to this member after a restart, to another one after a rebalance. `handle` decides
     *   when to commit; a later commit covers what came before it.
     * - When `handle` fails, the same records come again after a jittered wait, and nothing after them in that partition
     *   before; the other partitions go on.
     */
    readonly consume: <E, R>(
      options: ConsumeOptions,
      handle: (slice: Slice) => Effect.Effect<void, E, R>
    ) => Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R>
    /**
     * Asks any of its servers about the topic: an answer, whatever it is, says that the broker can be reached from this process. Absent where a
     * process that reaches the database reaches the broker.
     */
    readonly reach?: (topic: string) => Effect.Effect<void, BrokerUnavailable>
    /** How many of the topic's records stand behind the group's committed places. Absent where a broker does not say. */
    readonly lag?: (group: string, topic: string) => Effect.Effect<number, BrokerUnavailable | TopicUnavailable>
  }
>()("paid-once/brokers/Broker") {}
