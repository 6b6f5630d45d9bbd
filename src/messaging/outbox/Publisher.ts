/**
 * Sends the events of one lane and topic as one batch to the one partition that the lane lies in.
 */
import { Context, Effect, Layer } from "effect"
import { Faults } from "../../platform/Faults.ts"
import { Broker, BrokerUnavailable, type PublishError, type TopicInfo, TopicUnavailable } from "../broker/Broker.ts"
import { toRecords } from "../Envelope.ts"
import { type Lane, partitionOf } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import type { QueuedEvent, Receipt } from "./OutboxQueue.ts"
import { TopicChecks } from "./TopicChecks.ts"

export class Publisher extends Context.Service<
  Publisher,
  {
    /** Checks that the topic can carry lanes, making it if it is missing and the broker is set to; remembers what it is like. */
    readonly prepare: (topic: string) => Effect.Effect<TopicInfo, BrokerUnavailable | TopicUnavailable>
    /** Appends the events, in their order and as a whole; they are of one topic and one lane. */
    readonly publish: (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) => Effect.Effect<Receipt, PublishError>
  }
>()("paid-once/messaging/outbox/Publisher") {
  static readonly layer: Layer.Layer<Publisher, never, Broker> = Layer.effect(
    Publisher,
    Effect.gen(function* () {
      const broker = yield* Broker
      const faults = yield* Faults
      const checks = yield* TopicChecks
      const topics = new Map<string, TopicInfo>()

      const prepare = Effect.fnUntraced(function* (topic: string) {
        const known = topics.get(topic)
        if (known !== undefined) return known
        const { findings, info } = yield* checks.inspect(topic)
        const broken = findings.find(({ kind }) => kind === "stops")
        if (broken !== undefined) return yield* new TopicUnavailable({ topic, reason: broken.sentence })
        topics.set(topic, info)
        return info
      })

      const publish = Effect.fnUntraced(function* (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) {
        const { partitions } = yield* prepare(topic)
        const partition = partitionOf(lane, partitions)
        const { baseOffset } = yield* faults
          .around(
            "dispatcher.before-publish",
            broker.publish({ topic, partition, records: toRecords(events) }),
            (): PublishError =>
              new BrokerUnavailable({ operation: "publish", cause: new Error("the ack was lost on purpose") })
          )
          .pipe(
            // The topic may have been made anew with other partitions: look again before the next batch. An outage says nothing of the
            // kind, and asking then takes longer than the send that fails.
            Effect.tapError((error) =>
              Effect.sync(() => (error._tag === "TopicUnavailable" ? topics.delete(topic) : undefined))
            )
          )
        return { partition, baseOffset }
      })

      return Publisher.of({ prepare, publish })
    })
  ).pipe(Layer.provide(TopicChecks.layer))
}
