/** The event of the peers that keep it whole, as JSON, and its record on the wire: the same as the service's (Envelope.ts). */

const hex = (uuid) => uuid.replaceAll("-", "")

/** The event of a load, as an application would hand it to a relay. */
export const toEvent = ({ aggregateId, aggregateType, data, version }) => ({
  eventId: crypto.randomUUID(),
  eventType: "Measured",
  schemaVersion: 1,
  occurredAt: new Date().toISOString(),
  traceId: hex(crypto.randomUUID()),
  aggregateType,
  aggregateId,
  aggregateVersion: version,
  data
})

/** The event's record. */
export const toMessage = (event) => ({
  key: event.aggregateId,
  value: JSON.stringify(event),
  headers: {
    "event-id": event.eventId,
    outbox_id: event.eventId,
    "event-type": event.eventType,
    "schema-version": String(event.schemaVersion),
    traceparent: `00-${event.traceId}-${event.traceId.slice(0, 16)}-01`
  }
})
