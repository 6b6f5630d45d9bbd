/** The records of orders in a topic. */
import { type Effect, Result } from "effect"
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import * as Envelope from "../../brokers/Envelope.ts"
import * as SentEvents from "../../brokers/SentEvents.ts"
import { TopicReader } from "../../brokers/TopicReader.ts"
import { orderAggregate } from "../../domain/Events.ts"

/** A record of an order's event, with its place. */
export interface OrderRecord {
  readonly partition: number
  readonly offset: bigint
  readonly envelope: Envelope.Envelope
  /** Of its publisher; null where it wrote none that can be read. */
  readonly spanId: string | null
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
 * Hands out the records of orders that the topic holds now, partition by partition in the order of their offsets. Each partition is handled one slice
 * at a time. Fails with the first failure of `handle`.
 */
export const forEachSlice = <E, R>(
  topic: string,
  handle: (records: ReadonlyArray<OrderRecord>) => Effect.Effect<void, E, R>
) =>
  TopicReader.use(({ read }) =>
    read(topic, ({ partition, records }) => handle(records.flatMap((record) => toOrderRecord(partition, record) ?? [])))
  )
