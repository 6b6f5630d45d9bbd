/**
 * Sends the events of one lane and topic as one batch to the one partition that the lane lies in.
 */
import type { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import { Broker, BrokerUnavailable, type PublishError, TopicUnavailable } from "../brokers/Broker.ts"
import { toRecords } from "../brokers/Envelope.ts"
import type { Place } from "../guards/PartitionPauses.ts"
import { TopicChecks } from "../operations/TopicChecks.ts"
import { Faults } from "../platform/Faults.ts"
import { type Lane, partitionOf } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import type { QueuedEvent, Receipt } from "./OutboxQueue.ts"

export class Publisher extends Context.Service<
  Publisher,
  {
    /**
     * Over how many of the topic's partitions its lanes are spread. Looks whether it can carry lanes, making it if it is missing and the
     * broker is set to; once it was found fit this costs nothing, until a later look finds that it is not. Then, and for as long as that
     * is so, the topic is unavailable, and the first thing that is wrong is the reason.
     *
     * A topic that grows changes nothing here: lanes stay in the partitions that they were spread over (PartitionCounts.ts).
     */
    readonly prepare: (topic: string) => Effect.Effect<number, BrokerUnavailable | TopicUnavailable>
    /** Where the lane lay in the topic when that was last found fit, whatever became of it since; undefined where it never was. */
    readonly placeOf: (lane: Lane, topic: string) => Place | undefined
    /** Whether the broker answers this process, which is asked about the topic. */
    readonly canReach: (topic: string) => Effect.Effect<boolean>
    /** Appends the events, in their order and as a whole; they are of one topic and one lane. */
    readonly publish: (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) => Effect.Effect<Receipt, PublishError>
  }
>()("paid-once/outbox/Publisher") {
  static readonly layerNoDeps: Layer.Layer<Publisher, never, Broker | TopicChecks> = Layer.effect(
    Publisher,
    Effect.gen(function* () {
      const broker = yield* Broker
      const faults = yield* Faults
      const checks = yield* TopicChecks
      /** What `prepare` said last. */
      const counts = new Map<string, number>()

      const prepare = Effect.fnUntraced(function* (topic: string) {
        const known = yield* checks.lastFit(topic)
        if (known !== undefined) {
          counts.set(topic, known)
          return known
        }
        const { findings, partitions } = yield* checks.inspect(topic)
        const broken = findings.find(({ kind }) => kind === "stops")
        if (broken !== undefined) return yield* new TopicUnavailable({ topic, reason: broken.sentence })
        counts.set(topic, partitions)
        return partitions
      })

      const publish = Effect.fnUntraced(function* (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) {
        const partition = partitionOf(lane, yield* prepare(topic))
        const { baseOffset } = yield* faults
          .around(
            "dispatcher.before-publish",
            broker.publish({ topic, partition, records: toRecords(events) }),
            (): PublishError =>
              new BrokerUnavailable({ operation: "publish", cause: new Error("the ack was lost on purpose") })
          )
          .pipe(
            // The topic may have been made anew with fewer partitions: look again before the next batch. An outage says nothing of the
            // kind, and asking then takes longer than the send that fails.
            Effect.tapError((error) => (error._tag === "TopicUnavailable" ? checks.forget(topic) : Effect.void))
          )
        return { partition, baseOffset }
      })

      return Publisher.of({
        prepare,
        placeOf: (lane, topic) => {
          const count = counts.get(topic)
          return count === undefined ? undefined : { partition: partitionOf(lane, count), count }
        },
        canReach: (topic) =>
          broker.reach === undefined
            ? Effect.succeed(true)
            : Effect.match(broker.reach(topic), { onSuccess: () => true, onFailure: () => false }),
        publish
      })
    })
  )

  /** With the checks that stop it: where others use `TopicChecks.layer`, too, they are the same ones. */
  static readonly layer: Layer.Layer<Publisher, never, Broker | PgClient.PgClient> = Publisher.layerNoDeps.pipe(
    Layer.provide(TopicChecks.layer)
  )
}
