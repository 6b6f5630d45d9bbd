/**
 * Reads a topic for an operator: whole, from its first record to the end that it has when the reading begins, or some offsets of it. It joins no group,
 * and no consumer's offset is read or moved.
 *
 * Apart from `Broker`: whoever reads need not be able to publish. An implementation is right when it passes the contract suite,
 * test/contracts/TopicReader.ts.
 */
import { Array, Context, Effect, type Scope } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { BrokerUnavailable, ConsumedRecord, TopicUnavailable } from "./Broker.ts"

/** Records of one partition, behind the last slice of it. */
export interface TopicSlice {
  readonly partition: number
  readonly records: NonEmptyReadonlyArray<ConsumedRecord>
  /** How many records are read in all, at most: a broker may count offsets of records that are gone. */
  readonly ofAll: number
}

/** Offsets of a partition, from `start` on and before `end`. */
export interface TopicRange {
  readonly partition: number
  readonly start: bigint
  readonly end: bigint
}

/** Records that are looked up together. A fetch is bounded in bytes, too. */
export const sliceSize = 500

type Failure = BrokerUnavailable | TopicUnavailable

/** A topic that is being read. */
export interface TopicSource {
  /** See {@link TopicReader}. */
  readonly bounds: Effect.Effect<ReadonlyArray<TopicRange>, Failure>
  /** Some records of a partition from an offset on, that has records there, and the offset behind them. */
  readonly fetch: (
    partition: number,
    offset: bigint
  ) => Effect.Effect<{ readonly records: ReadonlyArray<ConsumedRecord>; readonly next: bigint }, Failure>
}

export class TopicReader extends Context.Service<
  TopicReader,
  {
    /** The offsets that each partition has now. */
    readonly bounds: (topic: string) => Effect.Effect<ReadonlyArray<TopicRange>, Failure>
    /**
     * Hands out the topic's records, or those of `ranges`: each once, one slice at a time, partition by partition in the order of their offsets. Fails
     * with the first failure of `handle`.
     */
    readonly read: <E, R>(
      topic: string,
      handle: (slice: TopicSlice) => Effect.Effect<void, E, R>,
      ranges?: ReadonlyArray<TopicRange>
    ) => Effect.Effect<void, E | Failure, R>
  }
>()("paid-once/brokers/TopicReader") {
  /** Of topics that can be fetched from any offset on. */
  static readonly make = (open: (topic: string) => Effect.Effect<TopicSource, Failure, Scope.Scope>) =>
    TopicReader.of({
      bounds: (topic) => Effect.scoped(Effect.flatMap(open(topic), ({ bounds }) => bounds)),
      read: <E, R>(
        topic: string,
        handle: (slice: TopicSlice) => Effect.Effect<void, E, R>,
        ranges?: ReadonlyArray<TopicRange>
      ) =>
        Effect.gen(function* () {
          const { bounds, fetch } = yield* open(topic)
          const wanted = ranges ?? (yield* bounds)
          const ofAll = wanted.reduce((sum, { end, start }) => sum + Number(end - start), 0)
          for (const { end, partition, start } of wanted) {
            let from = start
            while (from < end) {
              const { next, records } = yield* fetch(partition, from)
              const before = from
              const fresh = records.filter(({ offset }) => offset >= before && offset < end)
              for (const slice of Array.chunksOf(fresh, sliceSize)) yield* handle({ partition, records: slice, ofAll })
              // Retention may have dropped the rest meanwhile.
              if (next <= from) break
              from = next
            }
          }
        }).pipe(Effect.scoped) as Effect.Effect<void, E | Failure, R>
    })
}
