/**
 * Events as rows of the queue: the content of a row, the one INSERT for it, and the columns that a dispatcher reads.
 *
 * The INSERT is part of every business transaction. Its text is built by hand and kept: a template would cost as much as the rest of an append.
 */
import { type Context, Result } from "effect"
import type { Statement } from "effect/sql"
import * as Envelope from "../brokers/Envelope.ts"
import * as Tracing from "../platform/Tracing.ts"
import type { Lane } from "./Lane.ts"
import type { AggregateRef, NewEvent } from "./NewEvent.ts"

/** The part of a row that is the event's own, and not its aggregate's. */
export interface EventRow {
  readonly eventId: string
  readonly eventType: string
  readonly schemaVersion: number
  readonly recordBytes: number
  /** JSON text. */
  readonly data: string
}

/** The span that writes the event, as the record's `traceparent` will name it. */
export interface Trace {
  readonly traceId: string
  readonly spanId: string
}

/** The largest value of the column, a smallint. */
const maxSchemaVersion = 32_767

/** The event's row, or why it could never be published: a name that consumers can't read, data that is not JSON, or too many bytes. */
export const encodeEvent = (
  { data, eventType, schemaVersion }: NewEvent,
  { aggregateId, aggregateType }: AggregateRef,
  maxEventBytes: number,
  nextId: () => string
): Result.Result<EventRow, string> => {
  const fault = Envelope.faultOfName(eventType)
  if (fault !== undefined) return Result.fail(`its eventType ${fault}`)
  if (!(Number.isInteger(schemaVersion) && schemaVersion >= 1 && schemaVersion <= maxSchemaVersion)) {
    return Result.fail(`its schemaVersion ${schemaVersion} is not between 1 and ${maxSchemaVersion}`)
  }
  let text: string | undefined
  try {
    text = JSON.stringify(data)
  } catch (error) {
    return Result.fail(`its data is no JSON: ${String(error)}`)
  }
  if (text === undefined) return Result.fail("its data is no JSON: undefined")
  const recordBytes = Envelope.widestRecordBytes({ eventType, schemaVersion, aggregateType, aggregateId, data: text })
  return recordBytes > maxEventBytes
    ? Result.fail(`it takes ${recordBytes} bytes, and ${maxEventBytes} are allowed (OUTBOX_MAX_EVENT_BYTES)`)
    : Result.succeed({ eventId: nextId(), eventType, schemaVersion, recordBytes, data: text })
}

/** The trace of the request that is being served, or a new one for work that nobody traces. */
export const traceOf = (context: Context.Context<never>, drawUuid: () => string): Trace => {
  const span = Tracing.spanOf(context)
  return {
    // A tracer may number its spans otherwise; the wire wants 32 and 16 hex digits.
    traceId: span !== undefined && /^[0-9a-f]{32}$/.test(span.traceId) ? span.traceId : hex(drawUuid()),
    spanId: span !== undefined && /^[0-9a-f]{16}$/.test(span.spanId) ? span.spanId : hex(drawUuid()).slice(0, 16)
  }
}

/** The columns of a row in the queue or among the parked ones, as a dispatcher reads an event. */
export const eventColumns = (table: string, data = `${table}.data::text`): string =>
  `${table}.lane, ${table}.seq, ${table}.event_id::text AS "eventId", ${table}.topic,
   ${table}.event_type AS "eventType", ${table}.schema_version AS "schemaVersion", ${table}.aggregate_type AS "aggregateType",
   ${table}.aggregate_id AS "aggregateId", ${table}.aggregate_version AS "aggregateVersion",
   to_char(${table}.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
   ${table}.trace_id AS "traceId", ${table}.span_id AS "spanId", ${table}.record_bytes AS "recordBytes", ${data} AS data`

/** The server's start time, asked once and not for each row (`LaneView.from`). */
export const serverStartText = "(SELECT pg_postmaster_start_time()::text)"

const hex = (uuid: string) => uuid.replaceAll("-", "")

/** A save's text in front of {@link saveText}: the aggregate's write, and further ones. */
export const beforeInsert = (
  sql: Statement.Constructor,
  write: Statement.Statement<unknown>,
  also: ((written: Statement.Fragment) => ReadonlyArray<Statement.Statement<unknown>>) | undefined
): readonly [text: string, parameters: ReadonlyArray<unknown>] => {
  if (also === undefined) {
    // Nearly every save. A template around it would cost as much as the write's own.
    const [text, parameters] = write.compile()
    return [`WITH written AS (${text})`, parameters]
  }
  const more = also(sql`written`).map((statement, index) => sql`${sql(`also_${index}`)} AS (${statement})`)
  return sql`WITH ${sql.csv([sql`written AS (${write})`, ...more])}`.compile()
}

/**
 * The INSERT of events, behind a text with so many `parameters` of its own. In a save the last event's version is that of `written`. In an
 * append the first event's version is the last parameter.
 */
const insertText = (parameters: number, version: "written" | "given", isOne: boolean): string => {
  const $ = (index: number, type: string) => `$${parameters + index}::${type}`
  const list = isOne ? "" : "[]"
  const own = [
    $(7, `uuid${list}`),
    $(8, `text${list}`),
    $(9, `int2${list}`),
    $(10, `int4${list}`),
    $(11, `text${list}`)
  ]
  // A single event, as nearly every append has, is read from the parameters: scanning and sorting a list of one costs as much as the row.
  const [eventId, type, schemaVersion, recordBytes, data] = isOne
    ? own
    : ["event.event_id", "event.type", "event.schema_version", "event.record_bytes", "event.data"]
  const versions = {
    written: isOne ? "written.version" : `written.version - cardinality(${own[0]}) + event.position::int4`,
    given: isOne ? $(12, "int4") : `${$(12, "int4")} - 1 + event.position::int4`
  }
  return (
    ` INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,` +
    ` aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)` +
    ` SELECT ${$(1, "int2")}, ${eventId}, ${$(2, "text")}, ${type}, ${schemaVersion}, ${$(3, "text")}, ${$(4, "text")},` +
    ` ${versions[version]}, clock.now, ${$(5, "text")}, ${$(6, "text")}, ${recordBytes}, ${data}::json` +
    ` FROM (SELECT clock_now() AS now) AS clock${version === "written" ? ", written" : ""}` +
    (isOne
      ? ""
      : `, unnest(${own.join(", ")}) WITH ORDINALITY AS event(event_id, type, schema_version, record_bytes, data, position)` +
        ` ORDER BY event.position`)
  )
}

/** The parameters of {@link insertText}, without the version of an append. */
export const valuesOf = (
  { aggregateId, aggregateType, topic }: AggregateRef,
  lane: Lane,
  rows: ReadonlyArray<EventRow>,
  { spanId, traceId }: Trace
): ReadonlyArray<unknown> => {
  const column = (name: keyof EventRow) => (rows.length === 1 ? rows[0]?.[name] : rows.map((row) => row[name]))
  const own = [column("eventId"), column("eventType"), column("schemaVersion"), column("recordBytes"), column("data")]
  return [lane, topic, aggregateType, aggregateId, traceId, spanId, ...own]
}

const appendTexts = [insertText(0, "given", true), insertText(0, "given", false)] as const

/** An append's statement, for one event or for several. */
export const appendText = (isOne: boolean): string => appendTexts[isOne ? 0 : 1]

/** Texts are kept for so many parameters in front: putting them together for each save would be a good part of its cost. */
const keptParameters = 64
const behindWrite = (parameters: number, isOne: boolean) =>
  `, event AS (${insertText(parameters, "written", isOne)}) SELECT * FROM written`
const saveTexts = [true, false].map((isOne) =>
  Array.from({ length: keptParameters }, (_, parameters) => behindWrite(parameters, isOne))
)

/** A save's text behind {@link beforeInsert}, for one event or for several. It returns what the aggregate's write returned. */
export const saveText = (parameters: number, isOne: boolean): string =>
  saveTexts[isOne ? 0 : 1]?.[parameters] ?? behindWrite(parameters, isOne)
