/**
 * Publishes only to topics that {@link TopicChecks} finds safe. Spreads lanes over the number of partitions that the database has noted
 * (PartitionCounts.ts), so a topic that grows moves no aggregate.
 *
 * Decorates the {@link Publisher}. Without it lanes are spread over the partitions that each process finds at its first send.
 */
import { Effect, Layer } from "effect"
import { TopicUnavailable } from "../brokers/Broker.ts"
import { changedSince, Publisher } from "../outbox/Publisher.ts"
import { TopicChecks } from "./TopicChecks.ts"

export const layer: Layer.Layer<Publisher, never, Publisher | TopicChecks> = Layer.effect(
  Publisher,
  Effect.gen(function* () {
    const publisher = yield* Publisher
    const checks = yield* TopicChecks
    /** What `prepare` said last. */
    const counts = new Map<string, number>()

    const inspect = Effect.fnUntraced(function* (topic: string) {
      const { findings, partitions } = yield* checks.inspect(topic)
      const broken = findings.find(({ kind }) => kind === "stops")
      if (broken !== undefined) return yield* new TopicUnavailable({ topic, reason: broken.sentence })
      return partitions
    })
    const prepare = (topic: string) =>
      checks.lastFit(topic).pipe(
        Effect.flatMap((known) => (known === undefined ? inspect(topic) : Effect.succeed(known))),
        Effect.map((partitions) => {
          counts.set(topic, partitions)
          return partitions
        })
      )

    return Publisher.of({
      prepare,
      partitionsOf: (topic) => counts.get(topic),
      publish: (batch) =>
        Effect.flatMap(prepare(batch.topic), (partitions) =>
          partitions === batch.partitions
            ? // After `TopicUnavailable` the topic is inspected anew: it may have been made again with fewer partitions. An outage is no sign of
              // that, and an inspection would take longer than the next failing send.
              Effect.tapError(publisher.publish(batch), (error) =>
                error._tag === "TopicUnavailable" ? checks.forget(batch.topic) : Effect.void
              )
            : changedSince(batch)
        )
    })
  })
)
