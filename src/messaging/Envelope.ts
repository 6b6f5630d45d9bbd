/**
 * How an event looks on the wire: the JSON value and the headers of its record.
 *
 * The data travels as the text its writer encoded. It is put between the envelope's other fields by joining strings, never
 * decoded and encoded again: what was committed is what is sent, byte for byte, and it costs next to nothing.
 */
import { Result, Schema } from "effect"
import type { BrokerRecord, ConsumedRecord } from "./broker/Broker.ts"

/** An event as it is stored; `data` is JSON text. */
export interface StoredEvent {
  /** UUID version 7; the consumers' key against duplicates. */
  readonly eventId: string
  readonly topic: string
  readonly eventType: string
  readonly schemaVersion: number
  readonly aggregateType: string
  readonly aggregateId: string
  /** Contiguous per aggregate, from 1. */
  readonly aggregateVersion: number
  /** ISO 8601 in UTC, with milliseconds. */
  readonly occurredAt: string
  /** 32 hex digits: the trace of the request that caused the event. */
  readonly traceId: string
  /** 16 hex digits: the span that wrote it. */
  readonly spanId: string
  readonly data: string
}

const encoder = new TextEncoder()

/** The record's value. Field order is part of the format: readers may log it, and tests compare it. */
export const encodeValue = (event: StoredEvent): string =>
  `{"eventId":"${event.eventId}","eventType":${JSON.stringify(event.eventType)},"schemaVersion":${event.schemaVersion}` +
  `,"occurredAt":"${event.occurredAt}","traceId":"${event.traceId}","aggregateType":${JSON.stringify(event.aggregateType)}` +
  `,"aggregateId":${JSON.stringify(event.aggregateId)},"aggregateVersion":${event.aggregateVersion},"data":${event.data}}`

/** The record's headers. `outbox_id` repeats the event's id under the name that Debezium's outbox users know. */
export const headersOf = (event: StoredEvent): Readonly<Record<string, string>> => ({
  "event-id": event.eventId,
  outbox_id: event.eventId,
  "event-type": event.eventType,
  "schema-version": String(event.schemaVersion),
  // W3C Trace Context: version 00, sampled. The consumer's spans continue the trace of the request.
  traceparent: `00-${event.traceId}-${event.spanId}-01`
})

/** The record that carries the event. */
export const toRecord = (event: StoredEvent): BrokerRecord => ({
  key: event.aggregateId,
  value: encoder.encode(encodeValue(event)),
  headers: headersOf(event)
})

/** Bytes of a record as a topic's size limit counts them, close enough above: key, value, headers and their lengths. */
export const recordBytes = (record: BrokerRecord): number => {
  let bytes = encoder.encode(record.key).length + record.value.length
  for (const [name, value] of Object.entries(record.headers))
    bytes += name.length + encoder.encode(value).length + lengthBytes
  // Kafka's record has up to five varints of its own and the batch a header of 61 bytes.
  return bytes + 100
}

/** Bytes of a batch, which is what a topic's limit is about: Kafka refuses a batch above it, whatever its records are. */
export const batchBytes = (records: ReadonlyArray<BrokerRecord>): number =>
  records.reduce((sum, record) => sum + recordBytes(record), 0)

/** Two varint lengths a header. */
const lengthBytes = 6

/** What a consumer reads: the envelope with its data decoded as JSON and not yet by type. */
export const Envelope = Schema.Struct({
  eventId: Schema.String.check(Schema.isUUID()),
  eventType: Schema.NonEmptyString,
  schemaVersion: Schema.Int.check(Schema.isGreaterThan(0)),
  occurredAt: Schema.String,
  traceId: Schema.String,
  aggregateType: Schema.NonEmptyString,
  aggregateId: Schema.NonEmptyString,
  aggregateVersion: Schema.Int.check(Schema.isGreaterThan(0)),
  data: Schema.Json
})
export type Envelope = typeof Envelope.Type

const decodeEnvelope = Schema.decodeUnknownResult(Schema.fromJsonString(Envelope))
const decoder = new TextDecoder("utf-8", { fatal: true })

/** Reads a record's value, or says in a sentence why it is no event of ours. */
export const decode = (record: ConsumedRecord): Result.Result<Envelope, string> => {
  if (record.value === null) return Result.fail("the record has no value")
  return Result.try({
    try: () => decoder.decode(record.value ?? undefined),
    catch: () => "the value is not UTF-8"
  }).pipe(
    Result.flatMap((text) => Result.mapError(decodeEnvelope(text), String)),
    // A foreign writer may spell its UUID in capitals; Postgres gives it back in small letters, and the two must meet.
    Result.map((envelope) => ({ ...envelope, eventId: envelope.eventId.toLowerCase() }))
  )
}
