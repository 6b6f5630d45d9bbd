/** A record as a consumer takes it in: what it is called and whose it is, also where it can't be read. */
import { Result } from "effect"
import { createHash } from "node:crypto"
import type { ConsumedRecord } from "../broker/Broker.ts"
import * as Envelope from "../Envelope.ts"

export interface Arrival {
  readonly topic: string
  readonly partition: number
  readonly record: ConsumedRecord
  /** The event's id; where it can't be read, `topic:partition:offset`, which stays the same however often it comes. */
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
  return key.replaceAll("\0", "\uFFFD")
}

export const make = (topic: string, partition: number, record: ConsumedRecord): Arrival => {
  const read = Envelope.decode(record)
  const own = `${topic}:${partition}:${record.offset}`
  return Result.isSuccess(read)
    ? { topic, partition, record, eventId: read.success.eventId, aggregateId: read.success.aggregateId, read }
    : { topic, partition, record, eventId: own, aggregateId: aggregateOf(record.key, own), read }
}
