/** Reads an order's event out of its envelope, by type and schema version. */
import { Effect, Schema } from "effect"
import type { Envelope } from "../brokers/Envelope.ts"
import { OrderEvent, schemaVersions } from "../domain/Events.ts"
import { PermanentFailure } from "../inbox/Subscriber.ts"

const decode = Schema.decodeUnknownEffect(OrderEvent)
const versions: Readonly<Record<string, number>> = schemaVersions

/** Decodes one event. Fields that a later writer added are ignored; a newer schema version is refused. */
export const decodeOrderEvent = (envelope: Envelope): Effect.Effect<OrderEvent, PermanentFailure> =>
  envelope.schemaVersion > (versions[envelope.eventType] ?? 0)
    ? Effect.fail(
        new PermanentFailure({ reason: `no reader here for ${envelope.eventType} version ${envelope.schemaVersion}` })
      )
    : Effect.mapError(
        decode({ _tag: envelope.eventType, data: envelope.data }),
        (error) => new PermanentFailure({ reason: `${envelope.eventType} can't be read: ${error.message}` })
      )

/** The envelopes with their decoded events, in the same order. Fails with the first one that can't be decoded. */
export const decodeOrderEvents = (envelopes: ReadonlyArray<Envelope>) =>
  Effect.forEach(envelopes, (envelope) => Effect.map(decodeOrderEvent(envelope), (event) => ({ envelope, event })))
