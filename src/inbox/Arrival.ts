/** A record as a consumer takes it in, whether it can be read or not: the event's id, its aggregate, and the event itself. */
import { Effect, Result } from "effect"
import { createHash } from "node:crypto"
import type { ConsumedRecord } from "../brokers/Broker.ts"
import * as Envelope from "../brokers/Envelope.ts"
import { toStorable } from "../platform/StorableText.ts"

export interface Arrival {
  readonly topic: string
  readonly partition: number
  readonly record: ConsumedRecord
  /** The event's id; the {@link ownId} of a record that can't be read. */
  readonly eventId: string
  readonly aggregateId: string
  /** The event, or why the record is not one. */
  readonly read: Result.Result<Envelope.Envelope, string>
}

/** A record that could be read. */
export interface ReadableArrival extends Arrival {
  readonly event: Envelope.Envelope
}

/** Our own keys are shorter, and a longer one fits into no index. */
const maxKeyLength = 500

/** The aggregate's id for a record that can't be read: a topic's key is its aggregate's id. */
const aggregateIdOf = (key: string | null, own: string): string => {
  if (key === null || key === "") return own
  if (key.length > maxKeyLength) return `sha256:${createHash("sha256").update(key).digest("hex")}`
  return toStorable(key)
}

/** `topic:partition:offset`: the same each time the record comes, and no other record of the topic has it. */
export const ownId = ({ partition, record, topic }: Pick<Arrival, "topic" | "partition" | "record">): string =>
  `${topic}:${partition}:${record.offset}`

/**
 * The id of an unreadable record whose {@link ownId} belongs to another record: a topic that was deleted and made again gives its offsets
 * a second time. The same record has the same id each time it comes.
 */
export const otherId = (arrival: Arrival): string =>
  `${ownId(arrival)}:${createHash("sha256")
    .update(arrival.record.key ?? "")
    .update(arrival.record.value ?? "")
    .digest("hex")
    .slice(0, 8)}`

/** Reads a record of the topic's partition. */
export const make = (topic: string, partition: number, record: ConsumedRecord): Arrival => {
  const read = Envelope.decode(record)
  const own = ownId({ topic, partition, record })
  return Result.isSuccess(read)
    ? { topic, partition, record, eventId: read.success.eventId, aggregateId: read.success.aggregateId, read }
    : { topic, partition, record, eventId: own, aggregateId: aggregateIdOf(record.key, own), read }
}

/** The arrival's aggregate. Its type is unknown where the record can't be read. */
export const aggregateOf = ({ aggregateId, read }: Arrival) => ({
  aggregateId,
  aggregateType: Result.isSuccess(read) ? read.success.aggregateType : undefined
})

/**
 * The parts of a record that can always be parked: the bytes of its value and of its key, under its own id. The first result is parked behind its
 * aggregate. The second one is parked alone, for a record whose aggregate's id can't be stored either; the next version of that aggregate
 * then finds a gap.
 */
export const bare = (arrival: Arrival, error: string): readonly [Arrival, Arrival] => {
  const { partition, record, topic } = arrival
  const eventId = ownId(arrival)
  const headers = record.key === null ? {} : { "key-base64": Buffer.from(record.key).toString("base64") }
  const read = Result.fail(error)
  const stripped = { topic, partition, record: { ...record, key: null, headers }, eventId, read }
  return [
    { ...stripped, aggregateId: arrival.aggregateId },
    { ...stripped, aggregateId: eventId }
  ]
}

/** Annotates the log lines of `effect` with the consumer, the event and the attempt. */
export const annotateLogs = (consumer: string, arrival: Arrival, attempt: number) =>
  Effect.annotateLogs({
    consumer,
    event_id: arrival.eventId,
    event_type: Result.isSuccess(arrival.read) ? arrival.read.success.eventType : "unreadable",
    aggregate_id: arrival.aggregateId,
    ...(Result.isSuccess(arrival.read) ? { trace_id: arrival.read.success.traceId } : {}),
    attempt,
    topic: arrival.topic,
    partition: arrival.partition,
    offset: String(arrival.record.offset)
  })
