/** The part `pauses` of health: what an operator has paused. It is no failure, and leaves the process ready. */
import { Effect, Layer } from "effect"
import { Pauses } from "../operations/pauses/Pauses.ts"
import { HealthParts } from "./Health.ts"

/** Adds the part. */
export const layer: Layer.Layer<never, never, HealthParts> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { add } = yield* HealthParts
    const pauses = yield* Pauses
    const report = Effect.map(pauses.all, (paused) => ({ status: "ready" as const, paused }))
    yield* add({ name: "pauses", report })
  })
)
