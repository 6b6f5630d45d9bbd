/**
 * The reader of one partition for one member of a group: it keeps what kafkajs has fetched, and hands it out in slices, one at a
 * time, in its own fiber.
 *
 * A reader lives for one generation of the group. What it knows is worth nothing in the next one, even when the partition stays
 * with this member: kafkajs then fetches from the committed place again.
 */
import { Effect, Latch } from "effect"
import type { EachBatchPayload, KafkaMessage } from "kafkajs"
import * as Backoff from "../../platform/Backoff.ts"
import type { ConsumedRecord, Slice } from "../Broker.ts"
import type * as KafkaOffsets from "./KafkaOffsets.ts"

/**
 * Bytes of keys and values that wait in a reader before its partition is paused, and below which it is resumed. Some slices ahead,
 * so that the next fetch runs while a slice does; eight partitions and four groups of that still fit into a small process.
 */
const pauseAboveBytes = 1_048_576
const resumeBelowBytes = 524_288

export interface Reader<R> {
  readonly partition: number
  /** Takes over what kafkajs has fetched. */
  readonly offer: (payload: EachBatchPayload) => void
  /** Hands out slices for ever. It ends by interruption only. */
  readonly run: Effect.Effect<never, never, R>
  /** Hands out no further slice, and commits nothing any more. */
  readonly lose: () => void
  readonly isLost: () => boolean
  /** Hands out no further slice, and waits for the one under way, which may still commit. */
  readonly finish: Effect.Effect<void>
}

const decoder = new TextDecoder()

type HeaderValue = NonNullable<KafkaMessage["headers"]>[string]

/** A header may stand there more than once; Kafka's own clients read the last one then. One without a value reads as empty. */
const headerText = (value: HeaderValue | null): string => {
  const last = Array.isArray(value) ? value.at(-1) : value
  return last === undefined || last === null ? "" : typeof last === "string" ? last : decoder.decode(last)
}

const toRecord = ({ headers, key, offset, value }: KafkaMessage): ConsumedRecord => ({
  offset: BigInt(offset),
  key: key === null ? null : decoder.decode(key),
  value,
  headers: Object.fromEntries(Object.entries(headers ?? {}).map(([name, text]) => [name, headerText(text)]))
})

const bytesOf = ({ key, value }: KafkaMessage): number => (key?.length ?? 0) + (value?.length ?? 0)

/** The log is shorter than what was read of it: a leader was elected that had not seen all. */
export class LogTruncated extends Error {}

export const make = <E, R>({
  handle,
  offsets,
  partition,
  sliceSize,
  topic,
  wireTopic
}: {
  readonly topic: string
  readonly wireTopic: string
  readonly partition: number
  readonly sliceSize: number
  readonly handle: (slice: Slice) => Effect.Effect<void, E, R>
  /** Takes the places that are to be committed. */
  readonly offsets: KafkaOffsets.Offsets
}): Reader<R> => {
  const waiting: Array<{ readonly record: ConsumedRecord; readonly bytes: number }> = []
  const arrived = Latch.makeUnsafe(false)
  const idle = Latch.makeUnsafe(true)
  let waitingBytes = 0
  /** The offset behind everything that was taken over. */
  let next = 0n
  let resume: (() => void) | undefined
  let send: KafkaOffsets.Send | undefined
  let lost = false
  let stopping = false

  const offer = (payload: EachBatchPayload) => {
    const { batch } = payload
    // Two fetches of a partition overlap when its leader moves, and a partition's position goes back then.
    const fresh = batch.messages.filter(({ offset }) => BigInt(offset) >= next)
    const end = BigInt(batch.lastOffset()) + 1n
    if (BigInt(batch.highWatermark) < next) {
      throw new LogTruncated(`${wireTopic}/${partition} ends at ${batch.highWatermark}, and was read up to ${next}`)
    }
    if (fresh.length === 0 && end <= next) return
    next = end
    send = (places) => payload.commitOffsetsIfNecessary(places)
    // Only where kafkajs fetches next: what was resolved is committed by a slice, or comes again.
    payload.resolveOffset(batch.messages.at(-1)!.offset)
    for (const message of fresh) {
      const bytes = bytesOf(message)
      waiting.push({ record: toRecord(message), bytes })
      waitingBytes += bytes
    }
    if (waitingBytes > pauseAboveBytes) resume ??= payload.pause()
    arrived.openUnsafe()
  }

  /** Lost, it is not noted either: the group's place is the new owner's to set. */
  const commit = (offset: bigint) =>
    Effect.sync(() => {
      if (!lost && send !== undefined) offsets.note(reader, offset, send)
    })

  const nextSlice = (): Slice | undefined => {
    const [first, ...rest] = waiting.slice(0, sliceSize).map(({ record }) => record)
    return (
      first && {
        topic,
        partition,
        records: [first, ...rest],
        commit: commit((rest.at(-1) ?? first).offset + 1n)
      }
    )
  }

  const drop = (count: number) => {
    for (const { bytes } of waiting.splice(0, count)) waitingBytes -= bytes
    if (waitingBytes < resumeBelowBytes) {
      resume?.()
      resume = undefined
    }
  }

  /** Hands one slice out until it is handled. The fetches go on meanwhile, and with them the heartbeats, however long it takes. */
  const serve = Effect.fnUntraced(function* (slice: Slice) {
    for (let failures = 0; ; failures++) {
      if (stopping || lost) return yield* Effect.never
      idle.closeUnsafe()
      const exit = yield* Effect.exit(Effect.suspend(() => handle(slice))).pipe(
        Effect.ensuring(Effect.sync(() => idle.openUnsafe()))
      )
      if (exit._tag === "Success") return drop(slice.records.length)
      yield* Effect.logDebug(
        `slice at offset ${slice.records[0].offset} of ${topic}/${partition} failed and comes again`,
        exit.cause
      )
      yield* Effect.flatMap(Backoff.millisAfter(Backoff.kafkaSlice, failures + 1), Effect.sleep)
    }
  })

  const turn = Effect.suspend(() => {
    const slice = nextSlice()
    if (slice !== undefined) return serve(slice)
    arrived.closeUnsafe()
    return arrived.await
  })

  const reader: Reader<R> = {
    partition,
    offer,
    run: Effect.forever(turn),
    lose: () => {
      lost = true
    },
    isLost: () => lost,
    finish: Effect.suspend(() => {
      stopping = true
      return idle.await
    })
  }
  return reader
}
