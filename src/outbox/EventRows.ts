/** An event as a row of the queue: its bounds, its size on the wire, and the trace it belongs to. */
import { type Context, Result } from "effect"
import * as Envelope from "../brokers/Envelope.ts"
import * as Tracing from "../platform/Tracing.ts"
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

const hex = (uuid: string) => uuid.replaceAll("-", "")
