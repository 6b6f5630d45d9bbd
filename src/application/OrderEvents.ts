/** Reads an order's event out of its envelope, by type and schema version. */
import { Effect, Schema } from "effect"
import { OrderEvent, schemaVersions } from "../domain/Events.ts"
import type { Envelope } from "../messaging/Envelope.ts"

/** The event is of a type or a schema version that this code does not know. */
export class UnknownEvent extends Schema.TaggedError<UnknownEvent>()("UnknownEvent", {
  eventType: Schema.String,
  schemaVersion: Schema.Int
}) {
  override get message() {
    return `no reader here for ${this.eventType} version ${this.schemaVersion}`
  }
}

const decode = Schema.decodeUnknownEffect(OrderEvent)
const versions: Readonly<Record<string, number>> = schemaVersions

/** Fields that a later writer added are ignored; a newer schema version is not guessed at. */
export const decodeOrderEvent = (envelope: Envelope): Effect.Effect<OrderEvent, UnknownEvent | Schema.SchemaError> =>
  envelope.schemaVersion > (versions[envelope.eventType] ?? 0)
    ? Effect.fail(new UnknownEvent({ eventType: envelope.eventType, schemaVersion: envelope.schemaVersion }))
    : decode({ _tag: envelope.eventType, data: envelope.data })
