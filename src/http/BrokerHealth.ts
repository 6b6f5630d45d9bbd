/** What health says of the broker: whether the last exchange with it went well. */
import { Effect, Layer, SubscriptionRef } from "effect"
import { Broker } from "../brokers/Broker.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part, for a process that speaks with the broker: one that never does would report it as ready for ever. */
export const layer: Layer.Layer<never, never, Broker | HealthParts> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { available, name } = yield* Broker
    const { add } = yield* HealthParts
    const report = Effect.map(SubscriptionRef.get(available), (now): PartReport => ({
      status: now ? "ready" : "degraded",
      name
    }))
    yield* add({ name: "broker", report })
  })
)
