/**
 * Reads a whole topic for an operator: from its first record to the end that it has when the reading begins. No consumer's offset is read or moved.
 *
 * Apart from `Broker`: whoever reads need not be able to publish. An implementation is right when it passes the contract suite,
 * test/contracts/TopicReader.ts.
 */
import { Array, Context, Deferred, Effect, Layer } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import { randomUUID } from "node:crypto"
import { Broker, type BrokerUnavailable, type ConsumedRecord, type TopicUnavailable } from "./Broker.ts"
import { GroupProgress } from "./GroupProgress.ts"

/** Records of one partition, behind the last slice of it. */
export interface TopicSlice {
  readonly partition: number
  readonly records: NonEmptyReadonlyArray<ConsumedRecord>
  /** How many records the topic had when the reading began, at most: a broker may count offsets of records that are gone. */
  readonly ofAll: number
}

/** Records that are looked up together. A fetch is bounded in bytes, too. */
export const sliceSize = 500

export class TopicReader extends Context.Service<
  TopicReader,
  {
    /**
     * Hands out the topic's records, each once and partition by partition in the order of their offsets. A partition is handled one slice at a time;
     * partitions may be handled concurrently. Fails with the first failure of `handle`.
     */
    readonly read: <E, R>(
      topic: string,
      handle: (slice: TopicSlice) => Effect.Effect<void, E, R>
    ) => Effect.Effect<void, E | BrokerUnavailable | TopicUnavailable, R>
  }
>()("paid-once/brokers/TopicReader") {
  /** For a broker that gives records to groups alone: reads as a group of its own, and commits nothing. */
  static readonly layerGroup: Layer.Layer<TopicReader, never, Broker | GroupProgress> = Layer.effect(
    TopicReader,
    Effect.gen(function* () {
      const broker = yield* Broker
      const progress = yield* GroupProgress
      return TopicReader.of({
        read: <E, R>(topic: string, handle: (slice: TopicSlice) => Effect.Effect<void, E, R>) =>
          Effect.gen(function* () {
            const group = `topic-reader-${randomUUID()}`
            const partitions = yield* progress.of(group, topic)
            const left = new Map(partitions.filter(({ lag }) => lag > 0).map(({ end, partition }) => [partition, end]))
            if (left.size === 0) return
            const ofAll = partitions.reduce((sum, { lag }) => sum + lag, 0)
            /** A group that commits nothing gets all records again when it has lost its connection. */
            const next = new Map<number, bigint>()
            const done = yield* Deferred.make<void, E>()
            const consume = broker.consume({ group, topic, sliceSize }, ({ partition, records }) =>
              Effect.gen(function* () {
                const end = left.get(partition)
                if (end === undefined) return
                const from = next.get(partition) ?? 0n
                const fresh = records.filter(({ offset }) => offset >= from && offset < end)
                if (Array.isReadonlyArrayNonEmpty(fresh)) yield* handle({ partition, records: fresh, ofAll })
                const last = records.at(-1)!.offset
                if (last >= from) next.set(partition, last + 1n)
                if (last >= end - 1n) left.delete(partition)
                if (left.size === 0) yield* Deferred.succeed(done, undefined)
              }).pipe(
                // Given back to the broker, a failure would be a slice that comes again and again.
                Effect.catchCause((cause) => {
                  left.clear()
                  return Deferred.failCause(done, cause)
                }),
                Effect.asVoid
              )
            )
            yield* Effect.raceFirst(Deferred.await(done), consume)
          })
      })
    })
  )
}
