/** What health says of the consumers: events that they could not apply, and aggregates that wait for an event that has not come. */
import { Effect, Layer } from "effect"
import { InboxReport } from "../operations/InboxReport.ts"
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
          // An event that failed is a case for an operator, and no outage. One that is missing should not be possible: that is an alarm.
          status: found.some(([, { gaps }]) => gaps > 0) ? "degraded" : "ready",
          consumers: Object.fromEntries(found)
        }
      })
      yield* add({ name: "inbox", report })
    })
  )
