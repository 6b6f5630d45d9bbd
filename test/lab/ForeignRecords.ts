/** Records that another service writes to the topic: events of its own aggregates, in any order of versions, and records that can't be read. */
import { orderAggregate } from "../../src/domain/Events.ts"
import type { ConsumedRecord } from "../../src/brokers/Broker.ts"

type Foreign = Omit<ConsumedRecord, "offset">

const encoder = new TextEncoder()

/** The foreign aggregates' letters, by their partitions. */
export const foreignLetters = ["Z", "Y"] as const

/**
 * An event of that partition's foreign aggregate, the same however often it is sent. `isNewer`: with a schema version that no consumer
 * knows.
 */
export const foreignEvent = (partition: number, version: number, isNewer: boolean): Foreign => {
  const letter = foreignLetters[partition]!
  const aggregateId = `foreign-${letter}`
  const eventId = `00000000-0000-7000-8000-00000000${isNewer ? "1" : "0"}${partition}0${version}`
  return {
    key: aggregateId,
    headers: { "event-id": eventId },
    value: encoder.encode(
      JSON.stringify({
        eventId,
        eventType: "OrderPlaced",
        schemaVersion: isNewer ? 99 : 1,
        occurredAt: "2026-01-01T00:00:00.000Z",
        traceId: "0".repeat(32),
        aggregateType: orderAggregate,
        aggregateId,
        aggregateVersion: version,
        data: {
          customerId: letter,
          lines: [{ sku: "thing", quantity: 1, unitAmountMinor: 1 }],
          total: { amountMinor: 1, currency: "EUR" }
        }
      })
    )
  }
}

/** Not JSON, no value, and not UTF-8. */
const values = [encoder.encode(`{"eventId":`), null, new Uint8Array([0xff, 0xfe, 0x00])] as const

/** A record that can't be read. With the key of an aggregate it belongs to that aggregate. */
export const brokenRecord = (key: string | null, kind: number): Foreign => ({
  key,
  headers: {},
  value: values[kind % values.length]!
})
