/** The part `broker` of health: whether the last exchange with the broker succeeded. */
import { Effect, Layer, SubscriptionRef } from "effect"
import { Broker } from "../brokers/Broker.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part. Only for a process that talks to the broker: another one would always report it as ready. */
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
