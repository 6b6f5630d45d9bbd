/** What health says of the dispatcher in this process: the lanes it owns, and the topics it can't reach right now. */
import { Effect, Layer } from "effect"
import { Dispatcher } from "../messaging/outbox/Dispatcher.ts"
import { Holds } from "../messaging/outbox/Holds.ts"
import { LaneWorkers } from "../messaging/outbox/LaneWorkers.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part. */
export const layer: Layer.Layer<never, never, Dispatcher | HealthParts | Holds | LaneWorkers> = Layer.effectDiscard(
  Effect.gen(function* () {
    const workers = yield* LaneWorkers
    const dispatcher = yield* Dispatcher
    const holds = yield* Holds
    const { add } = yield* HealthParts
    const report = Effect.gen(function* (): Effect.fn.Return<PartReport> {
      const lanes = yield* workers.lanes
      const pausedTopics = yield* dispatcher.pauses
      const { dead, parked } = yield* holds.counts
      return {
        status: pausedTopics.length === 0 ? "ready" : "degraded",
        lanesOwned: lanes.length,
        pausedTopics: pausedTopics.map(({ attempt, topic }) => ({ topic, attempt })),
        // A refused event is a case for an operator, and no outage: all others flow.
        parkedEvents: parked,
        deadLetters: dead
      }
    })
    yield* add({ name: "dispatcher", report })
  })
)
