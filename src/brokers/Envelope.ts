/**
 * The wire format of an event: the JSON value and the headers of its record.
 *
 * The data is sent as the text that its writer encoded. It is joined with the envelope's other fields as a string and never decoded, so
 * the committed bytes are the published bytes.
 */
import { Array, Result, Schema } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import { isStorable } from "../platform/StorableText.ts"
import { utf8Length, writeText } from "../platform/Utf8.ts"
import type { BrokerRecord, ConsumedRecord } from "./Broker.ts"

/** An event as it is stored; `data` is JSON text. */
export interface StoredEvent {
  /** UUID version 7. Consumers recognise duplicates by it. */
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
  /** 32 hexadecimal digits: the trace of the request that caused the event. */
  readonly traceId: string
  /** 16 hexadecimal digits: the span that wrote it. */
  readonly spanId: string
  readonly data: string
}

/** A JSON string, as `JSON.stringify` makes it. Most types and ids need no escapes, and then quotes are enough. */
const quoted = (text: string): string => (plain.test(text) ? `"${text}"` : JSON.stringify(text))
const plain = /^[\w .:/@-]*$/

/** The value up to the data. The order of the fields is part of the format: readers may log it, and tests compare it. */
export const headOf = (event: StoredEvent): string =>
  `{"eventId":"${event.eventId}","eventType":${quoted(event.eventType)},"schemaVersion":${event.schemaVersion}` +
  `,"occurredAt":"${event.occurredAt}","traceId":"${event.traceId}","aggregateType":${quoted(event.aggregateType)}` +
  `,"aggregateId":${quoted(event.aggregateId)},"aggregateVersion":${event.aggregateVersion},"data":`

/** The record's headers. `outbox_id` repeats the event's id under the name of Debezium's outbox router. */
export const headersOf = (event: StoredEvent): Readonly<Record<string, string>> => ({
  "event-id": event.eventId,
  outbox_id: event.eventId,
  "event-type": event.eventType,
  "schema-version": String(event.schemaVersion),
  // W3C Trace Context: version 00, sampled. A consumer's spans continue the trace of the request.
  traceparent: `00-${event.traceId}-${event.spanId}-01`
})

/**
 * The records of the events. Their values share one buffer: a buffer for each would be most of the garbage under load.
 */
export const toRecords = (events: NonEmptyReadonlyArray<StoredEvent>): NonEmptyReadonlyArray<BrokerRecord> => {
  const heads = events.map(headOf)
  const sizes = events.map((event, index) => utf8Length(heads[index]!) + utf8Length(event.data) + 1)
  const values = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + size, 0))
  let end = 0
  return Array.map(events, (event, index) => {
    const start = end
    const head = heads[index]!
    const dataLength = utf8Length(event.data)
    end = writeText(values, head, sizes[index]! - dataLength - 1, start)
    end = writeText(values, event.data, dataLength, end)
    values[end++] = closingBrace
    return { key: event.aggregateId, value: values.subarray(start, end), headers: headersOf(event) }
  })
}

const closingBrace = 0x7d

/** The record of one event. */
export const toRecord = (event: StoredEvent): BrokerRecord => toRecords([event])[0]

/** The size of a record as a topic's limit counts it, or slightly more: key, value, headers and their lengths. */
export const recordBytes = ({ headers, key, value }: BrokerRecord): number => sizeOf(key, value.length, headers)

/**
 * The largest {@link recordBytes} that an event's record can have, before its id, version and time are known. Computed without building
 * the record, because every append asks for it.
 */
export const widestRecordBytes = (
  event: Pick<StoredEvent, "eventType" | "schemaVersion" | "aggregateType" | "aggregateId" | "data">
): number => {
  const { aggregateId, aggregateType, data, eventType, schemaVersion } = event
  const inValue = quotedLength(eventType) + quotedLength(aggregateType) + quotedLength(aggregateId) + utf8Length(data)
  return blankBytes + inValue + utf8Length(aggregateId) + utf8Length(eventType) + 2 * String(schemaVersion).length
}

/** The bytes of {@link quoted} without the quotes. */
const quotedLength = (text: string): number => (plain.test(text) ? text.length : utf8Length(JSON.stringify(text)) - 2)

const sizeOf = (key: string, valueBytes: number, headers: BrokerRecord["headers"]): number => {
  let bytes = utf8Length(key) + valueBytes
  for (const [name, value] of Object.entries(headers)) bytes += name.length + utf8Length(value) + lengthBytes
  // Kafka adds up to five varints per record and a header of 61 bytes per batch.
  return bytes + 100
}

/** The size of a batch. A topic's limit applies to whole batches. */
export const batchBytes = (records: ReadonlyArray<BrokerRecord>): number =>
  records.reduce((sum, record) => sum + recordBytes(record), 0)

/** Two varint lengths per header. */
const lengthBytes = 6

/** The size of a record without its event's texts, with the longest version and ids. */
const blankBytes =
  recordBytes(
    toRecord({
      eventId: "00000000-0000-0000-0000-000000000000",
      topic: "",
      eventType: "",
      schemaVersion: 1,
      aggregateType: "",
      aggregateId: "",
      aggregateVersion: 2 ** 31 - 1,
      occurredAt: "2000-01-01T00:00:00.000Z",
      traceId: "0".repeat(32),
      spanId: "0".repeat(16),
      data: ""
    })
  ) -
  2 * "1".length

/** One below the largest `integer` of Postgres, so that the next version also fits. */
export const maxVersion = 2_147_483_646

/** Of a name or an id, in UTF-16 units. */
const maxNameLength = 500
/**
 * Of a name or an id, in bytes of UTF-8. An id and a type share index entries (consumer_cursors, outbox_holds), which hold 2,704 bytes. A
 * larger name could be published, but neither archived nor applied.
 */
const maxNameBytes = 1_000
/** A text of at most this length is within the bytes, too: a UTF-16 unit takes at most three. */
const surelyShort = Math.floor(maxNameBytes / 3)

/**
 * The fault of an event's or aggregate's type, or of an aggregate's id, as the end of a sentence; undefined where there is none. The outbox
 * appends no event with a faulty name, and consumers refuse it. A name that Postgres can't store exactly would merge two aggregates.
 */
export const faultOfName = (name: string): string | undefined => {
  if (name === "") return "is empty"
  if (name.length > maxNameLength) return `has ${name.length} characters, and ${maxNameLength} are allowed`
  if (name.length > surelyShort) {
    const bytes = utf8Length(name)
    if (bytes > maxNameBytes) return `takes ${bytes} bytes, and ${maxNameBytes} are allowed`
  }
  return isStorable(name) ? undefined : "has a NUL or half a character in it"
}

const Name = Schema.String.check(Schema.makeFilter((name) => faultOfName(name) ?? true))

/** ISO 8601, with a zone that Postgres takes. */
const isoTime =
  /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?:Z|[+-](?:0\d|1[0-5]):[0-5]\d)$/

/** The years 1 to 9999 in UTC. Languages write years beyond them in different ways. */
const firstMillis = Date.parse("0001-01-01T00:00:00.000Z")
const lastMillis = Date.parse("9999-12-31T23:59:59.999Z")

/** Whether the month has the day: JavaScript reads April 31 as May 1, and Postgres refuses it. */
const isDay = (time: string): boolean => {
  const day = Number(time.slice(8, 10))
  return day <= 28 || new Date(`${time.slice(0, 10)}T00:00:00Z`).getUTCDate() === day
}

const isTime = (value: unknown): value is string => {
  if (typeof value !== "string" || !isoTime.test(value) || !isDay(value)) return false
  const millis = Date.parse(value)
  return millis >= firstMillis && millis <= lastMillis
}

/** The envelope as a consumer reads it. Its data is decoded as JSON, and not yet by its type. */
export const Envelope = Schema.Struct({
  eventId: Schema.String.check(Schema.isUUID()),
  eventType: Name,
  schemaVersion: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: maxVersion })),
  occurredAt: Schema.String.check(
    Schema.makeFilter((text) => isTime(text) || "is no ISO 8601 time with a zone in the years 1 to 9999")
  ),
  traceId: Schema.String,
  aggregateType: Name,
  aggregateId: Name,
  aggregateVersion: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: maxVersion })),
  data: Schema.Json
})
export type Envelope = typeof Envelope.Type

const decodeEnvelope = Schema.decodeUnknownResult(Schema.fromJsonString(Envelope))
const decoder = new TextDecoder("utf-8", { fatal: true })

const uuid = /^[\da-f]{8}-[\da-f]{4}-[1-8][\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/i
const isName = (value: unknown): value is string => typeof value === "string" && faultOfName(value) === undefined
const isVersion = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= maxVersion

/**
 * The envelope in a JSON text, or undefined where it is faulty; the schema then tells the fault. A sound envelope is recognised here at a
 * tenth of the schema's cost, which would walk once more through data that has just come out of JSON.parse.
 */
const readPlain = (text: string): Envelope | undefined => {
  let value: Record<string, unknown>
  try {
    value = JSON.parse(text) as Record<string, unknown>
  } catch {
    return undefined
  }
  if (typeof value !== "object" || value === null) return undefined
  const { aggregateId, aggregateType, aggregateVersion, data, eventId, eventType, occurredAt, schemaVersion, traceId } =
    value
  return typeof eventId === "string" &&
    uuid.test(eventId) &&
    isName(eventType) &&
    isVersion(schemaVersion) &&
    isTime(occurredAt) &&
    typeof traceId === "string" &&
    isName(aggregateType) &&
    isName(aggregateId) &&
    isVersion(aggregateVersion) &&
    data !== undefined
    ? {
        // A foreign writer may use upper case, and Postgres returns lower case: the two must be equal.
        eventId: eventId.toLowerCase(),
        eventType,
        schemaVersion,
        occurredAt,
        traceId,
        aggregateType,
        aggregateId,
        aggregateVersion,
        data: data as Schema.Json
      }
    : undefined
}

/** Decodes a record's value, or fails with a sentence about its fault. */
export const decode = (record: Pick<ConsumedRecord, "value">): Result.Result<Envelope, string> => {
  if (record.value === null) return Result.fail("the record has no value")
  let text: string
  try {
    text = decoder.decode(record.value)
  } catch {
    return Result.fail("the value is not UTF-8")
  }
  const plain = readPlain(text)
  return plain !== undefined
    ? Result.succeed(plain)
    : decodeEnvelope(text).pipe(
        Result.mapError(String),
        Result.map((envelope) => ({ ...envelope, eventId: envelope.eventId.toLowerCase() }))
      )
}
