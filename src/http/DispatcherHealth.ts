/** The part `dispatcher` of health: the lanes that this process owns, and those that it can't send at present. */
import { Effect, Layer } from "effect"
import { Dispatcher } from "../outbox/Dispatcher.ts"
import { Holds } from "../outbox/holds/Holds.ts"
import { LaneWorkers } from "../outbox/LaneWorkers.ts"
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
      const stoppedLanes = yield* workers.stopped
      // Only owned lanes: this process has no current state of the others.
      const misordered = (yield* dispatcher.misordered).filter(({ lane }) => lanes.includes(lane))
      const { dead, parked } = yield* holds.counts
      const reachesBroker = yield* workers.reachesBroker
      const isWell = reachesBroker && pausedTopics.length === 0 && stoppedLanes.length === 0 && misordered.length === 0
      return {
        status: isWell ? "ready" : "degraded",
        lanesOwned: lanes.length,
        // Where other processes reach the broker, they own the lanes.
        reachesBroker,
        // The log has the reason.
        stoppedLanes: stoppedLanes.map(({ attempt, lane }) => ({ lane, attempt })),
        misorderedAggregates: misordered.reduce((sum, { aggregates }) => sum + aggregates, 0),
        pausedTopics: pausedTopics.map(({ attempt, topic }) => ({ topic, attempt })),
        // A refused event needs an operator, but is no outage: all other aggregates are published.
        parkedEvents: parked,
        deadLetters: dead
      }
    })
    yield* add({ name: "dispatcher", report })
  })
)
