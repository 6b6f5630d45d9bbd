/** How far each consumer is behind, partition by partition, and who reads each. The broker is asked at each look, and not for long. */
import { Context, Effect, Layer, Schema } from "effect"
import { GroupProgress } from "../../brokers/GroupProgress.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"

/** A consumer in a partition of its topic. Offsets are texts: they may be larger than a JSON number is exact. */
export const PartitionLag = Schema.Struct({
  partition: Schema.Int,
  /** The offset that the partition's next record gets. */
  end: Schema.String,
  /** The offset after the last record that the consumer is done with; null where it has committed none. */
  committed: Schema.NullOr(Schema.String),
  lag: Schema.Int,
  /** The process or member that reads the partition; null where none does. */
  owner: Schema.NullOr(Schema.String)
})
export type PartitionLag = typeof PartitionLag.Type

/** How far a consumer is behind. */
export const Lag = Schema.Struct({
  consumer: Schema.String,
  topic: Schema.String,
  /** Records of all partitions that it has yet to read; null where the broker gave no answer. */
  lag: Schema.NullOr(Schema.Int),
  /** Why that is not known. */
  unknown: Schema.NullOr(Schema.String),
  /** In ascending order; none where the broker gave no answer. */
  partitions: Schema.Array(PartitionLag)
})
export type Lag = typeof Lag.Type

/** A person waits so long for an answer, whatever the broker's own limits are. */
const askMillis = 5_000

export class ConsumerLag extends Context.Service<
  ConsumerLag,
  {
    /** Of every consumer. It ends within seconds, also while the broker is away. */
    readonly all: Effect.Effect<ReadonlyArray<Lag>>
    /** Of one consumer; undefined where there is none of this name. */
    readonly of: (consumer: string) => Effect.Effect<Lag | undefined>
  }
>()("paid-once/operations/reports/ConsumerLag") {
  /** Knows these consumers. A consumer's group has its name. */
  static readonly layer = (
    consumers: ReadonlyArray<Pick<Subscriber, "name" | "topic">>
  ): Layer.Layer<ConsumerLag, never, GroupProgress> =>
    Layer.effect(
      ConsumerLag,
      Effect.map(GroupProgress, (progress) => {
        const look = ({ name: consumer, topic }: Pick<Subscriber, "name" | "topic">): Effect.Effect<Lag> =>
          progress.of(consumer, topic).pipe(
            Effect.timeout(askMillis),
            Effect.match({
              onSuccess: (partitions) => ({
                consumer,
                topic,
                lag: partitions.reduce((sum, { lag }) => sum + lag, 0),
                unknown: null,
                partitions: partitions.map(({ committed, end, lag, owner, partition }) => ({
                  partition,
                  end: String(end),
                  committed: committed === null ? null : String(committed),
                  lag,
                  owner
                }))
              }),
              onFailure: (error) => ({ consumer, topic, lag: null, unknown: error.message, partitions: [] })
            })
          )
        return ConsumerLag.of({
          // They are few.
          all: Effect.forEach(consumers, look, { concurrency: "unbounded" }),
          of: Effect.fn("ConsumerLag.of")((name): Effect.Effect<Lag | undefined> => {
            const consumer = consumers.find((one) => one.name === name)
            return consumer === undefined ? Effect.undefined : look(consumer)
          })
        })
      })
    )
}
