/**
 * The broker contract on a durable log in the service's own Postgres, so that the service runs without Kafka. It passes the same contract
 * suite (test/contracts/Broker.ts).
 *
 * It shares the database with the business data, but no transaction: an append commits by itself, as it does at any other broker. Its
 * guarantees hold across crashes of its members and of Postgres.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Stream, SubscriptionRef } from "effect"
import type { SqlError } from "effect/sql"
import * as Grace from "../../platform/Grace.ts"
import { Ownership } from "../../platform/Ownership.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Wakeups } from "../../platform/Wakeups.ts"
import {
  type Batch,
  Broker,
  BrokerUnavailable,
  type ConsumeOptions,
  MessageRejected,
  type Slice,
  TopicUnavailable,
  topicName
} from "../Broker.ts"
import { batchBytes } from "../Envelope.ts"
import * as EmbeddedLog from "./EmbeddedLog.ts"
import { countExpired, dropExpired, retentionDays } from "./EmbeddedLog.ts"
import * as EmbeddedReader from "./EmbeddedReader.ts"

export { dropExpired, retentionDays } from "./EmbeddedLog.ts"

/** Retention of the log: deletes the records that are older, or counts them in a dry run. */
export const upkeep = {
  table: "broker_log",
  deleteExpired: ({ dryRun = false }: { readonly dryRun?: boolean }) =>
    dryRun ? countExpired(retentionDays) : dropExpired(retentionDays)
}

/** Timing of the embedded broker, in milliseconds. */
export const EmbeddedBrokerSettings = Context.Reference<{
  /** How often a reader that has caught up polls when no wake-up came. */
  readonly pollMillis: number
  /** How long an exchange may take before Postgres counts as unavailable. */
  readonly requestTimeoutMillis: number
  /** How long a consumer that ends waits for the slices in flight. */
  readonly graceMillis: number
}>("paid-once/brokers/embedded/EmbeddedBrokerSettings", {
  defaultValue: () => ({
    pollMillis: 1_000,
    // Statements here take milliseconds, so this long means that Postgres hangs.
    requestTimeoutMillis: 10_000,
    graceMillis: 10_000
  })
})

const subject = "broker"

const make = Effect.gen(function* () {
  const log = EmbeddedLog.make(yield* PgClient.PgClient)
  const ownership = yield* Ownership
  const wakeups = yield* Wakeups
  const fibers = yield* Supervised.Fibers
  const { graceMillis, pollMillis, requestTimeoutMillis } = yield* EmbeddedBrokerSettings
  const grace = yield* Grace.make
  const available = yield* SubscriptionRef.make(true)

  const setAvailable = (now: boolean) =>
    Effect.suspend(() =>
      SubscriptionRef.getUnsafe(available) === now ? Effect.void : SubscriptionRef.set(available, now)
    )

  /** One exchange with Postgres. A refusal of the data shows that the broker is available. */
  const exchange = <A, E = never>(
    operation: string,
    effect: Effect.Effect<A, SqlError.SqlError>,
    refused?: (error: SqlError.SqlError) => E
  ): Effect.Effect<A, BrokerUnavailable | E> =>
    effect.pipe(
      Effect.timeout(requestTimeoutMillis),
      Effect.matchEffect({
        onSuccess: (value) => Effect.as(setAvailable(true), value),
        onFailure: (cause): Effect.Effect<never, BrokerUnavailable | E> =>
          refused !== undefined && cause._tag === "SqlError" && EmbeddedLog.isRefusal(cause)
            ? Effect.andThen(setAvailable(true), Effect.fail(refused(cause)))
            : Effect.andThen(setAvailable(false), Effect.fail(new BrokerUnavailable({ operation, cause })))
      })
    )

  const describe = Effect.fnUntraced(function* (topic: string) {
    const info = yield* exchange("describe", log.describe(topic))
    return info ?? (yield* new TopicUnavailable({ topic, reason: "it does not exist" }))
  })

  const ensureTopic = Effect.fn("EmbeddedBroker.ensureTopic")(function* (topic: string, partitions: number) {
    if (!topicName.test(topic)) {
      return yield* new TopicUnavailable({
        topic,
        reason: "a name has 1 to 249 letters, digits, dots, underscores or hyphens"
      })
    }
    yield* exchange(
      "create topic",
      log.create(topic, partitions),
      (error) => new TopicUnavailable({ topic, reason: `it can't have ${partitions} partitions: ${error.message}` })
    )
    return yield* describe(topic)
  })

  /** Fails with the reason why nothing was appended. */
  const explainRefusal = Effect.fnUntraced(function* ({ partition, records, topic }: Batch) {
    const { maxMessageBytes, partitions } = yield* describe(topic)
    if (partition < 0 || partition >= partitions) {
      return yield* new TopicUnavailable({
        topic,
        reason: `it has ${partitions} partitions and no number ${partition}`
      })
    }
    const bytes = batchBytes(records)
    return yield* new MessageRejected({
      topic,
      partition,
      reason: `the batch takes ${bytes} bytes, and the topic allows ${maxMessageBytes}`,
      isTooLarge: true
    })
  })

  const publish = Effect.fnUntraced(function* (batch: Batch) {
    const { partition, topic } = batch
    const baseOffset = yield* exchange(
      "append",
      log.append(batch),
      (error) => new MessageRejected({ topic, partition, reason: String(error.reason.cause) })
    )
    if (baseOffset === undefined) return yield* explainRefusal(batch)
    yield* wakeups.send(subject, [`${topic} ${partition}`])
    return { baseOffset }
  })

  const consume = <E, R>(
    options: ConsumeOptions,
    handle: (slice: Slice) => Effect.Effect<void, E, R>
  ): Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R> =>
    Effect.gen(function* () {
      const { group, topic } = options
      const { partitions } = yield* describe(topic)
      const membership = yield* ownership.join(EmbeddedLog.memberGroup(group, topic), partitions)
      const readers = Array.from({ length: partitions }, (_, partition) =>
        EmbeddedReader.make({ exchange, handle, log, membership, partition, pollMillis, ...options })
      )
      yield* wakeups.on(subject, (detail) => {
        const space = detail.lastIndexOf(" ")
        const reader = detail.slice(0, space) === topic ? readers[Number(detail.slice(space + 1))] : undefined
        reader?.wake()
      })
      yield* Effect.forEach(
        readers,
        (reader, partition) => Supervised.forkLoop(`consume ${group} ${topic} ${partition}`, reader.step),
        { discard: true }
      )
      // Registered last, so it runs first: the slices end, then the loops, then the member leaves the group.
      yield* Effect.addFinalizer(() =>
        Effect.suspend(() =>
          Effect.forEach(readers, (reader) => reader.finish, { concurrency: "unbounded", discard: true }).pipe(
            Effect.interruptible,
            Effect.timeoutOption(grace("slices", graceMillis))
          )
        )
      )
      yield* Stream.runForEach(membership.changes, (held) =>
        Effect.forEach(
          readers,
          (reader, partition) => (held.includes(partition) ? Effect.sync(reader.wake) : reader.lose),
          { discard: true }
        )
      )
      return yield* Effect.never
    }).pipe(
      Effect.scoped,
      Effect.provideService(Supervised.Fibers, fibers)
      // For a generic R, TypeScript can't see that R is the only remaining requirement.
    ) as Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R>

  return Broker.of({ name: "embedded", available, ensureTopic, publish, consume })
})

/** The embedded broker. */
export const layer: Layer.Layer<Broker, never, PgClient.PgClient | Ownership | Wakeups | Supervised.Fibers> =
  Layer.effect(Broker, make)
