/** The part `inbox` of health: events that a consumer could not apply, and aggregates that wait for a missing event. */
import { Effect, Layer } from "effect"
import { InboxReport } from "../operations/reports/InboxReport.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part. */
export const layer = (consumers: ReadonlyArray<string>): Layer.Layer<never, never, HealthParts | InboxReport> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { add } = yield* HealthParts
      const { counts } = yield* InboxReport
      const report = Effect.gen(function* (): Effect.fn.Return<PartReport> {
        const found = yield* Effect.forEach(consumers, (consumer) =>
          Effect.map(counts(consumer), (one) => [consumer, { ...one }] as const)
        )
        return {
          // A failed event needs an operator, but is no outage. A missing event should be impossible: it degrades health.
          status: found.some(([, { gaps }]) => gaps > 0) ? "degraded" : "ready",
          consumers: Object.fromEntries(found)
        }
      })
      yield* add({ name: "inbox", report })
    })
  )
