/**
 * How an event looks on the wire: the JSON value and the headers of its record.
 *
 * The data travels as the text its writer encoded. It is put between the envelope's other fields by joining strings, never
 * decoded and encoded again: what was committed is what is sent, byte for byte, and it costs next to nothing.
 */
import { Array, Result, Schema } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import { isStorable } from "../platform/StorableText.ts"
import { utf8Length, writeText } from "../platform/Utf8.ts"
import type { BrokerRecord, ConsumedRecord } from "./Broker.ts"

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

/** A JSON string, as `JSON.stringify` makes it. Types and ids are plain as a rule, and then it is the text between quotes. */
const quoted = (text: string): string => (plain.test(text) ? `"${text}"` : JSON.stringify(text))
const plain = /^[\w .:/@-]*$/

/** The value's fields in front of the data. Field order is part of the format: readers may log it, and tests compare it. */
const headOf = (event: StoredEvent): string =>
  `{"eventId":"${event.eventId}","eventType":${quoted(event.eventType)},"schemaVersion":${event.schemaVersion}` +
  `,"occurredAt":"${event.occurredAt}","traceId":"${event.traceId}","aggregateType":${quoted(event.aggregateType)}` +
  `,"aggregateId":${quoted(event.aggregateId)},"aggregateVersion":${event.aggregateVersion},"data":`

/** The record's headers. `outbox_id` repeats the event's id under the name that Debezium's outbox users know. */
export const headersOf = (event: StoredEvent): Readonly<Record<string, string>> => ({
  "event-id": event.eventId,
  outbox_id: event.eventId,
  "event-type": event.eventType,
  "schema-version": String(event.schemaVersion),
  // W3C Trace Context: version 00, sampled. The consumer's spans continue the trace of the request.
  traceparent: `00-${event.traceId}-${event.spanId}-01`
})

/**
 * The records that carry the events, their values side by side in one buffer: a buffer for each would be most of what the garbage
 * collector has to do under load.
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

/** The record that carries the event. */
export const toRecord = (event: StoredEvent): BrokerRecord => toRecords([event])[0]

/** Bytes of a record as a topic's size limit counts them, close enough above: key, value, headers and their lengths. */
export const recordBytes = ({ headers, key, value }: BrokerRecord): number => sizeOf(key, value.length, headers)

/**
 * {@link recordBytes} of the record that an event will have, before its id, version and time are known: at their widest. Nothing is
 * put together for it, for every write of an event asks.
 */
export const widestRecordBytes = (
  event: Pick<StoredEvent, "eventType" | "schemaVersion" | "aggregateType" | "aggregateId" | "data">
): number => {
  const { aggregateId, aggregateType, data, eventType, schemaVersion } = event
  const inValue = quotedLength(eventType) + quotedLength(aggregateType) + quotedLength(aggregateId) + utf8Length(data)
  return blankBytes + inValue + utf8Length(aggregateId) + utf8Length(eventType) + 2 * String(schemaVersion).length
}

/** The bytes of {@link quoted}, less the quotes. */
const quotedLength = (text: string): number => (plain.test(text) ? text.length : utf8Length(JSON.stringify(text)) - 2)

const sizeOf = (key: string, valueBytes: number, headers: BrokerRecord["headers"]): number => {
  let bytes = utf8Length(key) + valueBytes
  for (const [name, value] of Object.entries(headers)) bytes += name.length + utf8Length(value) + lengthBytes
  // Kafka's record has up to five varints of its own and the batch a header of 61 bytes.
  return bytes + 100
}

/** Bytes of a batch, which is what a topic's limit is about: Kafka refuses a batch above it, whatever its records are. */
export const batchBytes = (records: ReadonlyArray<BrokerRecord>): number =>
  records.reduce((sum, record) => sum + recordBytes(record), 0)

/** Two varint lengths a header. */
const lengthBytes = 6

/** What a record takes beside its event's own texts, with the longest version and ids there can be. */
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

/** One below the most that the tables' integers hold: there is a next one to compare with, and a turn behind it. */
export const maxVersion = 2_147_483_646

/** Of a name or an id. */
const maxNameLength = 500
/**
 * Its bytes in UTF-8: an id and a type stand side by side in keys of indexes (consumer_cursors, outbox_holds), whose entries hold 2,704 bytes. What
 * is larger could be published, but neither archived nor applied.
 */
const maxNameBytes = 1_000
/** What is not longer than this has no more bytes either: a UTF-16 unit takes at most three. */
const surelyShort = Math.floor(maxNameBytes / 3)

/**
 * What is wrong with an event's or aggregate's type, or an aggregate's id, in words to follow its name; undefined where nothing is. The outbox
 * writes no event with such a name, and consumers read none. (Two names that no text of Postgres tells apart would be one aggregate.)
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

/** The years 1 to 9999 in UTC: what is outside of them is written in other ways, and each language has its own. */
const firstMillis = Date.parse("0001-01-01T00:00:00.000Z")
const lastMillis = Date.parse("9999-12-31T23:59:59.999Z")

/** Whether a month has its day: JavaScript takes the 31st of April for the 1st of May, and Postgres refuses it. */
const isDay = (time: string): boolean => {
  const day = Number(time.slice(8, 10))
  return day <= 28 || new Date(`${time.slice(0, 10)}T00:00:00Z`).getUTCDate() === day
}

const isTime = (value: unknown): value is string => {
  if (typeof value !== "string" || !isoTime.test(value) || !isDay(value)) return false
  const millis = Date.parse(value)
  return millis >= firstMillis && millis <= lastMillis
}

/** What a consumer reads: the envelope with its data decoded as JSON and not yet by type. */
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
 * The envelope in a JSON text, or undefined where something is not as it should be; then the schema says what. What is right is seen here,
 * for a tenth of what the schema needs: it would walk through all of the data once more, which has just come out of JSON.parse.
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
        // A foreign writer may spell its UUID in capitals; Postgres gives it back in small letters, and the two must meet.
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

/** Reads a record's value, or says in a sentence why it is no event of ours. */
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
