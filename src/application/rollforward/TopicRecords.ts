/** The records of orders in a topic. */
import { type Effect, Result } from "effect"
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import * as Envelope from "../../brokers/Envelope.ts"
import * as SentEvents from "../../brokers/SentEvents.ts"
import { type TopicRange, TopicReader } from "../../brokers/TopicReader.ts"
import { orderAggregate } from "../../domain/Events.ts"

/** A record of an order's event, with its place. */
export interface OrderRecord {
  readonly partition: number
  readonly offset: bigint
  readonly envelope: Envelope.Envelope
  /** Of its publisher; null where it wrote none that can be read. */
  readonly spanId: string | null
}

/** How far the reading is: the records behind the last ones, those of others included, and how many there are in all at most. */
interface Progress {
  readonly read: number
  readonly ofAll: number
}

const uuid = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i

const toOrderRecord = (partition: number, record: ConsumedRecord): OrderRecord | undefined => {
  const read = Envelope.decode(record)
  // Whatever else is in the topic was not written by an outbox of orders.
  if (Result.isFailure(read) || read.success.aggregateType !== orderAggregate || !uuid.test(read.success.aggregateId))
    return undefined
  return { partition, offset: record.offset, envelope: read.success, spanId: SentEvents.spanIdOf(record) ?? null }
}

/**
 * Hands out the records of orders that the topic holds now, or those of `ranges`, partition by partition in the order of their offsets. They are handled
 * one slice at a time. Fails with the first failure of `handle`.
 */
export const forEachSlice = <E, R>(
  topic: string,
  handle: (records: ReadonlyArray<OrderRecord>, progress: Progress) => Effect.Effect<void, E, R>,
  ranges?: ReadonlyArray<TopicRange>
) =>
  TopicReader.use(({ read }) =>
    read(
      topic,
      ({ ofAll, partition, records }) =>
        handle(
          records.flatMap((record) => toOrderRecord(partition, record) ?? []),
          { read: records.length, ofAll }
        ),
      ranges
    )
  )
