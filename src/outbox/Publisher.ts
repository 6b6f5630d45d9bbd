/** Sends a batch to the one partition of its topic that has all its lanes. */
import { Clock, Context, Effect, Layer } from "effect"
import { Broker, BrokerUnavailable, type PublishError, TopicSettings, TopicUnavailable } from "../brokers/Broker.ts"
import { toRecords } from "../brokers/Envelope.ts"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { laneCount } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import type { QueuedEvent, Receipt } from "./Queue.ts"

/** A batch: for each lane a run in order of `seq`. If the topic's lanes are spread over `partitions`, all its lanes lie in `partition`. */
export interface Batch {
  readonly topic: string
  readonly partition: number
  readonly partitions: number
  readonly events: NonEmpty<QueuedEvent>
}

/** See {@link Publisher}. */
export interface PublisherService {
  /**
   * The number of the topic's partitions that its lanes are spread over. Creates a missing topic if the broker is configured to. A known number costs
   * no request, until a send finds the topic unavailable.
   */
  readonly prepare: (topic: string) => Effect.Effect<number, BrokerUnavailable | TopicUnavailable>
  /** The last result of {@link prepare}, which may be outdated; undefined if it never succeeded. */
  readonly partitionsOf: (topic: string) => number | undefined
  /** Appends the events, in their order and as a whole. */
  readonly publish: (batch: Batch) => Effect.Effect<Receipt, PublishError>
}

export class Publisher extends Context.Service<Publisher, PublisherService>()("paid-once/outbox/Publisher") {
  static readonly layer: Layer.Layer<Publisher, never, Broker> = Layer.effect(
    Publisher,
    Effect.gen(function* () {
      const broker = yield* Broker
      const faults = yield* Faults
      const clock = yield* Clock.Clock
      const { partitions: wanted } = yield* TopicSettings
      const counts = new Map<string, number>()
      /** Topics whose partitions are known and have not changed since. */
      const current = new Set<string>()

      const prepare = Effect.fnUntraced(function* (topic: string) {
        const known = counts.get(topic)
        if (known !== undefined && current.has(topic)) return known
        const { partitions } = yield* broker.ensureTopic(topic, wanted)
        if (laneCount % partitions !== 0) {
          const reason = `it has ${partitions} partitions: ${laneCount} lanes need a count that divides ${laneCount}`
          return yield* new TopicUnavailable({ topic, reason })
        }
        counts.set(topic, partitions)
        current.add(topic)
        return partitions
      })

      const publish = Effect.fnUntraced(function* ({ events, partition, partitions, topic }: Batch) {
        // A decorator that counts partitions runs its own check.
        if (counts.has(topic) && (yield* prepare(topic)) !== partitions)
          return yield* changedSince({ topic, partitions })
        const { baseOffset } = yield* faults
          .around(
            "dispatcher.before-publish",
            broker.publish({ topic, partition, records: toRecords(events) }),
            (): PublishError =>
              new BrokerUnavailable({ operation: "publish", cause: new Error("the ack was lost on purpose") })
          )
          .pipe(
            // The topic may have been created anew with another number of partitions: they are counted again before the next batch.
            Effect.tapError((error) =>
              error._tag === "TopicUnavailable" ? Effect.sync(() => current.delete(topic)) : Effect.void
            )
          )
        const atMillis = Monotonic.millisUnsafe(clock)
        return { partition, baseOffset, ageMillis: () => Math.round(Monotonic.millisUnsafe(clock) - atMillis) }
      })

      return Publisher.of({ prepare, partitionsOf: (topic) => counts.get(topic), publish })
    })
  )
}

/** The topic was created anew with another number of partitions after the batch was packed. The next batch uses the new number. */
export const changedSince = ({ partitions, topic }: Pick<Batch, "topic" | "partitions">) =>
  new TopicUnavailable({ topic, reason: `its lanes are not spread over ${partitions} partitions any more` })
