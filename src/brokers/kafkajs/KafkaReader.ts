/**
 * The reader of one partition for one member of a group. It buffers the records that kafkajs has fetched, and hands them out in slices,
 * one at a time, in its own fiber.
 *
 * A reader lives for one generation of the group. Its buffer is worthless in the next generation, even when the partition stays with
 * this member, because kafkajs then fetches from the committed offset again.
 */
import { Effect, Latch } from "effect"
import type { EachBatchPayload, KafkaMessage } from "kafkajs"
import * as Backoff from "../../platform/Backoff.ts"
import type { ConsumedRecord, Slice } from "../Broker.ts"
import type * as KafkaOffsets from "./KafkaOffsets.ts"

/**
 * Bytes of buffered keys and values above which the partition is paused, and below which it is resumed. A few slices, so that the next
 * fetch overlaps with a slice. The buffers of eight partitions in four groups fit into a small process.
 */
const pauseAboveBytes = 1_048_576
const resumeBelowBytes = 524_288

/** Takes over a batch that kafkajs has fetched. Throws {@link LogTruncated}. */
export type Offer = (payload: EachBatchPayload) => void

export interface Reader<R> {
  readonly partition: number
  readonly offer: Offer
  /** Hands out slices, and ends by interruption only. */
  readonly run: Effect.Effect<never, never, R>
  /** The partition belongs to the next generation: no further slice is handed out, and nothing is committed. */
  readonly lose: () => void
  readonly isLost: () => boolean
  /** Hands out no further slice, and waits for the slice in flight, which may still commit. */
  readonly finish: Effect.Effect<void>
}

const decoder = new TextDecoder()

type HeaderValue = NonNullable<KafkaMessage["headers"]>[string]

/** The last value of a repeated header, as in Kafka's own clients. A header without a value reads as empty. */
const headerText = (value: HeaderValue | null): string => {
  const last = Array.isArray(value) ? value.at(-1) : value
  return last === undefined || last === null ? "" : typeof last === "string" ? last : decoder.decode(last)
}

/** A record of kafkajs. Its headers are decoded when they are read: most slices need none. */
export const toRecord = ({ headers, key, offset, timestamp, value }: KafkaMessage): ConsumedRecord => {
  let texts: ConsumedRecord["headers"] | undefined
  return {
    offset: BigInt(offset),
    key: key === null ? null : decoder.decode(key),
    value,
    get timestampMillis() {
      return Number(timestamp)
    },
    get headers() {
      return (texts ??= Object.fromEntries(
        Object.entries(headers ?? {}).map(([name, text]) => [name, headerText(text)])
      ))
    }
  }
}

const bytesOf = ({ key, value }: KafkaMessage): number => (key?.length ?? 0) + (value?.length ?? 0)

/** The log ends before an offset that was already read: an unclean leader election has dropped records. */
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
  /** Commits the offsets of handled slices. */
  readonly offsets: KafkaOffsets.Offsets
}): Reader<R> => {
  const waiting: Array<{ readonly record: ConsumedRecord; readonly bytes: number }> = []
  const arrived = Latch.makeUnsafe(false)
  const idle = Latch.makeUnsafe(true)
  let waitingBytes = 0
  /** The offset after the last record that was offered. */
  let next = 0n
  let resume: (() => void) | undefined
  let send: KafkaOffsets.Send | undefined
  let lost = false
  let stopping = false

  const offer = (payload: EachBatchPayload) => {
    const { batch } = payload
    // When a leader moves, two fetches of its partition overlap, and a batch may repeat records.
    const fresh = batch.messages.filter(({ offset }) => BigInt(offset) >= next)
    const end = BigInt(batch.lastOffset()) + 1n
    if (BigInt(batch.highWatermark) < next) {
      throw new LogTruncated(`${wireTopic}/${partition} ends at ${batch.highWatermark}, and was read up to ${next}`)
    }
    if (fresh.length === 0 && end <= next) {
      // kafkajs' position may have gone back, as by an older generation's answer. Then it would fetch the same records for ever.
      payload.resolveOffset(String(next - 1n))
      return
    }
    next = end
    send = (request) => payload.commitOffsetsIfNecessary(request)
    // Only moves the position from which kafkajs fetches. A resolved offset is committed by its slice, or delivered again.
    payload.resolveOffset(batch.messages.at(-1)!.offset)
    for (const message of fresh) {
      const bytes = bytesOf(message)
      waiting.push({ record: toRecord(message), bytes })
      waitingBytes += bytes
    }
    if (waitingBytes > pauseAboveBytes) resume ??= payload.pause()
    arrived.openUnsafe()
  }

  /** A lost reader commits nothing: the offset is set by the partition's new owner. */
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

  /** Hands one slice out until it is handled. Fetches and heartbeats continue meanwhile, however long that takes. */
  const serve = Effect.fnUntraced(function* (slice: Slice) {
    for (let failures = 0; ; failures++) {
      if (stopping || lost) return yield* Effect.never
      idle.closeUnsafe()
      const exit = yield* Effect.exit(Effect.suspend(() => handle(slice))).pipe(
        Effect.ensuring(Effect.sync(() => idle.openUnsafe()))
      )
      if (exit._tag === "Success") return drop(slice.records.length)
      yield* Effect.logDebug(
        `slice at offset ${slice.records[0].offset} of ${topic}/${partition} failed and is delivered again`,
        exit.cause
      )
      yield* Effect.flatMap(Backoff.millisAfter(Backoff.kafkaSlice, failures + 1), Effect.sleep)
    }
  })

  const step = Effect.suspend(() => {
    const slice = nextSlice()
    if (slice !== undefined) return serve(slice)
    arrived.closeUnsafe()
    return arrived.await
  })

  const reader: Reader<R> = {
    partition,
    offer,
    run: Effect.forever(step),
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
