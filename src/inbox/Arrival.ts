/** A record as a consumer takes it in: what it is called and whose it is, also where it can't be read. */
import { Result } from "effect"
import { createHash } from "node:crypto"
import type { ConsumedRecord } from "../brokers/Broker.ts"
import * as Envelope from "../brokers/Envelope.ts"
import { toStorable } from "../platform/StorableText.ts"

export interface Arrival {
  readonly topic: string
  readonly partition: number
  readonly record: ConsumedRecord
  /** The event's id; where it can't be read, its {@link ownId}. */
  readonly eventId: string
  readonly aggregateId: string
  /** The event, or why the record is none. */
  readonly read: Result.Result<Envelope.Envelope, string>
}

/** An event that could be read. */
export interface ReadableArrival extends Arrival {
  readonly event: Envelope.Envelope
}

/** Longer keys are none of ours, and no index takes them. */
const maxKeyLength = 500

/** The aggregate of a record that can't be read: a topic's key is its aggregate's id. */
const aggregateOf = (key: string | null, own: string): string => {
  if (key === null || key === "") return own
  if (key.length > maxKeyLength) return `sha256:${createHash("sha256").update(key).digest("hex")}`
  return toStorable(key)
}

/** `topic:partition:offset`: stays the same however often the record comes, and no other one has it. */
export const ownId = ({ partition, record, topic }: Pick<Arrival, "topic" | "partition" | "record">): string =>
  `${topic}:${partition}:${record.offset}`

/**
 * What a record that can't be read is called where another one has its {@link ownId}: a topic that was made anew gives its places a second time.
 * The same record has the same name whenever it comes.
 */
export const otherId = (arrival: Arrival): string =>
  `${ownId(arrival)}:${createHash("sha256")
    .update(arrival.record.key ?? "")
    .update(arrival.record.value ?? "")
    .digest("hex")
    .slice(0, 8)}`

export const make = (topic: string, partition: number, record: ConsumedRecord): Arrival => {
  const read = Envelope.decode(record)
  const own = ownId({ topic, partition, record })
  return Result.isSuccess(read)
    ? { topic, partition, record, eventId: read.success.eventId, aggregateId: read.success.aggregateId, read }
    : { topic, partition, record, eventId: own, aggregateId: aggregateOf(record.key, own), read }
}

/**
 * What can be parked of a record whatever is in it: its value's bytes and its key's, under its own id. First for its aggregate, and where not
 * even that one's id can be stored, alone; then the next version of its aggregate finds it missing.
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
