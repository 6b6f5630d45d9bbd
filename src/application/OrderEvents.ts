/** Reads an order's event out of its envelope, by type and schema version. */
import { Effect, Schema } from "effect"
import { OrderEvent, schemaVersions } from "../domain/Events.ts"
import type { Envelope } from "../brokers/Envelope.ts"
import { PermanentFailure } from "../inbox/Subscriber.ts"

const decode = Schema.decodeUnknownEffect(OrderEvent)
const versions: Readonly<Record<string, number>> = schemaVersions

/** Fields that a later writer added are ignored; a newer schema version is not guessed at. */
export const decodeOrderEvent = (envelope: Envelope): Effect.Effect<OrderEvent, PermanentFailure> =>
  envelope.schemaVersion > (versions[envelope.eventType] ?? 0)
    ? Effect.fail(
        new PermanentFailure({ reason: `no reader here for ${envelope.eventType} version ${envelope.schemaVersion}` })
      )
    : Effect.mapError(
        decode({ _tag: envelope.eventType, data: envelope.data }),
        (error) => new PermanentFailure({ reason: `${envelope.eventType} can't be read: ${error.message}` })
      )

/** The envelopes with what is in them, in their order. Fails with the first that can't be read. */
export const decodeOrderEvents = (envelopes: ReadonlyArray<Envelope>) =>
  Effect.forEach(envelopes, (envelope) => Effect.map(decodeOrderEvent(envelope), (event) => ({ envelope, event })))
