/** The readers of the partitions that a member is assigned: replaced as a whole when the group enters a new generation. */
import { Cause, Effect, Fiber } from "effect"
import type { ConsumeOptions, Slice } from "../Broker.ts"
import type * as KafkaOffsets from "./KafkaOffsets.ts"
import * as KafkaReader from "./KafkaReader.ts"

/** The readers of one member. */
export interface Assignment {
  /** Replaces all readers: those of the last generation commit nothing more. */
  readonly assign: (partitions: ReadonlyArray<number>) => void
  readonly readerOf: (
    partition: number
  ) => { readonly offer: KafkaReader.Offer; readonly isLost: () => boolean } | undefined
  /** Starts no further slice, and waits for the slices in flight. */
  readonly finish: Effect.Effect<void>
  /** Commits nothing more. */
  readonly lose: () => void
}

/** `onDefect` hears of a reader that ended by its own fault. Failures of `handle` stay inside the reader. */
export const make = <E, R>({
  handle,
  offsets,
  onDefect,
  runFork,
  sliceSize,
  topic,
  wireTopic
}: Pick<ConsumeOptions, "sliceSize" | "topic"> & {
  readonly wireTopic: string
  readonly handle: (slice: Slice) => Effect.Effect<void, E, R>
  readonly offsets: KafkaOffsets.Offsets
  readonly runFork: (effect: Effect.Effect<unknown, never, R>) => Fiber.Fiber<unknown>
  readonly onDefect: (cause: unknown) => void
}): Assignment => {
  let readers = new Map<number, KafkaReader.Reader<R>>()
  /** The last fiber of each partition, also when it has ended: the next reader starts after its predecessor's slice. */
  const fibers = new Map<number, Fiber.Fiber<unknown>>()

  const start = (reader: KafkaReader.Reader<R>) => {
    const previous = fibers.get(reader.partition)
    const run = previous === undefined ? reader.run : Effect.andThen(Fiber.await(previous), reader.run)
    const reported = Effect.onError(run, (cause) =>
      Effect.sync(() => (Cause.hasInterruptsOnly(cause) ? undefined : onDefect(Cause.squash(cause))))
    )
    fibers.set(reader.partition, runFork(reported))
  }

  return {
    assign: (partitions) => {
      readers.forEach((reader, partition) => {
        reader.lose()
        fibers.get(partition)?.interruptUnsafe()
      })
      readers = new Map(
        partitions.map((partition) => [
          partition,
          KafkaReader.make({ topic, wireTopic, partition, sliceSize, handle, offsets })
        ])
      )
      readers.forEach(start)
    },
    readerOf: (partition) => readers.get(partition),
    finish: Effect.suspend(() =>
      Effect.forEach(readers.values(), (reader) => reader.finish, { concurrency: "unbounded", discard: true })
    ),
    lose: () => readers.forEach((reader) => reader.lose())
  }
}
