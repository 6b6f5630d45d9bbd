/** What health says of the dispatcher in this process: the lanes it owns, and the topics it can't reach right now. */
import { Effect, Layer, Option } from "effect"
import { Dispatcher } from "../messaging/outbox/Dispatcher.ts"
import { LaneWorkers } from "../messaging/outbox/LaneWorkers.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part where this process has the role, and nothing elsewhere. */
export const layer: Layer.Layer<never, never, Dispatcher> = Layer.effect(
  HealthParts,
  Effect.gen(function* () {
    const workers = yield* Effect.serviceOption(LaneWorkers)
    const dispatcher = yield* Dispatcher
    if (Option.isNone(workers)) return []
    const report = Effect.gen(function* (): Effect.fn.Return<PartReport> {
      const lanes = yield* workers.value.lanes
      const pausedTopics = yield* dispatcher.pauses
      return {
        status: pausedTopics.length === 0 ? "ready" : "degraded",
        lanesOwned: lanes.length,
        pausedTopics: pausedTopics.map(({ attempt, topic }) => ({ topic, attempt }))
      }
    })
    return [{ name: "dispatcher", report }]
  })
)
