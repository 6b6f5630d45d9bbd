/** An event is measured before it is written, and its record is built when it is sent: both must have the same size. */
import { assert, it } from "@effect/vitest"
import * as Envelope from "../../src/brokers/Envelope.ts"

const event: Envelope.StoredEvent = {
  eventId: "0190163d-8694-7000-8000-000000000000",
  topic: "orders",
  eventType: "OrderPlaced",
  schemaVersion: 1,
  aggregateType: "Order",
  aggregateId: "0190163d-8694-7000-8000-000000000001",
  // The measured maximum.
  aggregateVersion: 2_147_483_647,
  occurredAt: "2026-01-01T00:00:00.000Z",
  traceId: "0af7651916cd43dd8448eb211c80319c",
  spanId: "b7ad6b7169203331",
  data: `{"note":"x"}`
}

it("an event is measured as its record will be, in any script and with characters that JSON escapes", () => {
  const variants: ReadonlyArray<Envelope.StoredEvent> = [
    event,
    { ...event, aggregateId: 'Straße 5 "東京"\n', eventType: "Größe😀", data: `{"note":"${"😀é".repeat(300)}"}` },
    { ...event, data: `"\ud800"`, aggregateId: "\udc00" },
    { ...event, data: `{"note":"${"x".repeat(100_000)}"}` },
    { ...event, schemaVersion: 12_345, aggregateType: "Bestellung / größer" }
  ]
  for (const variant of variants)
    assert.strictEqual(Envelope.widestRecordBytes(variant), Envelope.recordBytes(Envelope.toRecord(variant)))
})
