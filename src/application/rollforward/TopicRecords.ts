/** The records of orders in a topic. */
import { type Effect, Result } from "effect"
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import * as Envelope from "../../brokers/Envelope.ts"
import * as SentEvents from "../../brokers/SentEvents.ts"
import { type TopicRange, TopicReader } from "../../brokers/TopicReader.ts"
import { orderAggregate } from "../../domain/Events.ts"
import type { TopicEvent } from "../../operations/refill/Standings.ts"

/** The event of an order in a record, as it is stored and as it is read. */
export interface OrderRecord {
  readonly stored: TopicEvent
  readonly envelope: Envelope.Envelope
}

/** How far the reading is: the records behind the last ones, those of others included, and how many there are in all at most. */
interface Progress {
  readonly read: number
  readonly ofAll: number
}

const uuid = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i

const toOrderRecord = (topic: string, partition: number, record: ConsumedRecord): OrderRecord | undefined => {
  const read = Envelope.decode(record)
  const stored = SentEvents.toStored(topic, record)
  // Whatever else is in the topic was not written by an outbox of orders.
  if (Result.isFailure(read) || stored?.aggregateType !== orderAggregate || !uuid.test(stored.aggregateId))
    return undefined
  const timestampMillis = record.timestampMillis ?? Date.parse(stored.occurredAt)
  return { stored: { ...stored, partition, offset: record.offset, timestampMillis }, envelope: read.success }
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
          records.flatMap((record) => toOrderRecord(topic, partition, record) ?? []),
          { read: records.length, ofAll }
        ),
      ranges
    )
  )
