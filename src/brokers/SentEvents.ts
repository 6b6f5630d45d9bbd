/** The outbox's events in the records of a topic: `Envelope.toRecords` read backwards. */
import { Result } from "effect"
import { isStorable } from "../platform/StorableText.ts"
import type { ConsumedRecord } from "./Broker.ts"
import { decode, headOf, type StoredEvent } from "./Envelope.ts"

const decoder = new TextDecoder()

/** The span that wrote the event; undefined where its publisher named none. */
export const spanIdOf = ({ headers }: Pick<ConsumedRecord, "headers">): string | undefined =>
  /^00-[\da-f]{32}-([\da-f]{16})-/.exec(headers["traceparent"] ?? "")?.[1]

/**
 * The event as its outbox has stored it, byte for byte; undefined for a record that no outbox has sent. A record that
 * was written anew on its way keeps its data as JSON, with other blanks.
 */
export const toStored = (topic: string, record: ConsumedRecord): StoredEvent | undefined => {
  const read = decode(record)
  if (Result.isFailure(read) || record.headers["event-id"]?.toLowerCase() !== read.success.eventId) return undefined
  const { data, ...fields } = read.success
  if (!isStorable(fields.traceId)) return undefined
  const event = { ...fields, topic, spanId: spanIdOf(record) ?? "0".repeat(16) }
  const text = decoder.decode(record.value ?? undefined)
  const head = headOf({ ...event, data: "" })
  return { ...event, data: text.startsWith(head) ? text.slice(head.length, -1) : JSON.stringify(data) }
}
