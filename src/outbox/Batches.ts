/** Packs fetched events into batches, and divides acknowledged batches into runs of single lanes. */
import { Array } from "effect"
import { type Lane, partitionOf } from "./Lane.ts"
import type { Bounds } from "./LaneParts.ts"
import type { Batch } from "./Publisher.ts"
import type { Acknowledged, QueuedEvent, Receipt } from "./Queue.ts"

/** A batch that is to be sent. While the topic's partitions are unknown it has no partition, and contains lanes of all partitions. */
export type Parcel = Omit<Batch, "partition" | "partitions"> & Partial<Pick<Batch, "partition" | "partitions">>

/** The answer to a fetch of many lanes. `cut` are the lanes that have more events. */
export interface Found {
  readonly batches: ReadonlyArray<Parcel>
  readonly cut: ReadonlySet<Lane>
}

/** Groups the elements. Groups are in the order of their first elements. */
const grouped = <A, K>(all: Iterable<A>, keyOf: (one: A) => K): Map<K, Array.NonEmptyArray<A>> => {
  const groups = new Map<K, Array.NonEmptyArray<A>>()
  for (const one of all) {
    const key = keyOf(one)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [one])
    else group.push(one)
  }
  return groups
}

/** Groups what belongs to lanes by lane. */
export const byLane = <A extends { readonly lane: Lane }>(all: Iterable<A>) => grouped(all, ({ lane }) => lane)

/** Groups the events by partition. The topic's lanes are spread over `partitions`. */
export const byPartition = (events: Iterable<QueuedEvent>, partitions: number) =>
  grouped(events, ({ lane }) => partitionOf(lane, partitions))

/** Packs the events: a batch has the runs of lanes of one topic and partition, in the order of the events. */
export const toBatches = (
  events: ReadonlyArray<QueuedEvent>,
  options: Bounds & { readonly partitionsOf: (topic: string) => number | undefined }
): ReadonlyArray<Parcel> => {
  const parcels: Array<Parcel> = []
  for (const [topic, ofTopic] of grouped(events, (event) => event.topic)) {
    const partitions = options.partitionsOf(topic)
    for (const [partition, ofPartition] of byPartition(ofTopic, partitions ?? 1)) {
      const place = partitions === undefined ? {} : { partition, partitions }
      for (const packed of pack(byLane(ofPartition).values(), options)) {
        parcels.push({ topic, events: packed, ...place })
      }
    }
  }
  return parcels
}

/** Packs runs into groups of at most a batch. A run is never divided: it is at most a batch, unless it is one large event. */
const pack = (
  runs: Iterable<Array.NonEmptyArray<QueuedEvent>>,
  { batchBytes, batchSize }: Bounds
): ReadonlyArray<Array.NonEmptyArray<QueuedEvent>> => {
  const groups: Array<{ readonly events: Array.NonEmptyArray<QueuedEvent>; bytes: number }> = []
  for (const run of runs) {
    let bytes = 0
    for (const { recordBytes } of run) bytes += recordBytes
    const last = groups.at(-1)
    if (last !== undefined && last.events.length + run.length <= batchSize && last.bytes + bytes <= batchBytes) {
      for (const event of run) last.events.push(event)
      last.bytes += bytes
    } else groups.push({ events: run, bytes })
  }
  return groups.map((group) => group.events)
}

/** Divides an acknowledged batch into the runs of its lanes, each with its own first offset. */
export const toRuns = (
  topic: string,
  events: ReadonlyArray<QueuedEvent>,
  receipt: Receipt
): ReadonlyArray<Acknowledged> => {
  const runs: Array<Acknowledged> = []
  let start = 0
  for (let index = 1; index <= events.length; index++) {
    const { lane } = events[start]!
    if (events[index]?.lane === lane) continue
    const own = { ...receipt, baseOffset: receipt.baseOffset + BigInt(start) }
    runs.push({ lane, topic, events: events.slice(start, index), receipt: own })
    start = index
  }
  return runs
}
