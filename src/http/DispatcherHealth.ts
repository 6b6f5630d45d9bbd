/** The health of the dispatcher in this process: the lanes it owns, and the events it can't send right now. */
import { Effect, Layer, Schema } from "effect"
import { BrokerReachability } from "../guards/BrokerReachability.ts"
import { OutOfOrderVersions } from "../guards/OutOfOrderVersions.ts"
import { PartitionPauses } from "../guards/PartitionPauses.ts"
import { Holds } from "../outbox/holds/Holds.ts"
import { LaneWorkers } from "../outbox/LaneWorkers.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** A topic of which a partition can't be reached, in the part's report. */
export const UnreachableTopic = Schema.Struct({
  topic: Schema.String,
  /** Failures in a row. */
  attempt: Schema.Int,
  /** Those that can't be reached; none where the topic's partitions are not known. */
  partitions: Schema.Array(Schema.Int),
  sinceSeconds: Schema.Number,
  nextTrySeconds: Schema.Number
})

/** Adds the part. */
export const layer: Layer.Layer<
  never,
  never,
  HealthParts | Holds | LaneWorkers | PartitionPauses | OutOfOrderVersions | BrokerReachability
> = Layer.effectDiscard(
  Effect.gen(function* () {
    const workers = yield* LaneWorkers
    const pauses = yield* PartitionPauses
    const outOfOrder = yield* OutOfOrderVersions
    const reachability = yield* BrokerReachability
    const holds = yield* Holds
    const { add } = yield* HealthParts
    const report = Effect.gen(function* (): Effect.fn.Return<PartReport> {
      const lanes = yield* workers.lanes
      const pausedTopics = yield* pauses.all
      const stoppedLanes = yield* workers.stopped
      // This process knows nothing about lanes that it no longer owns.
      const misordered = (yield* outOfOrder.counts).filter(({ lane }) => lanes.includes(lane))
      const { dead, parked } = yield* holds.counts
      const reachesBroker = yield* reachability.isReachable
      const isHealthy =
        reachesBroker && pausedTopics.length === 0 && stoppedLanes.length === 0 && misordered.length === 0
      return {
        status: isHealthy ? "ready" : "degraded",
        lanesOwned: lanes.length,
        // If this process does not reach the broker, processes that do own its lanes.
        reachesBroker,
        // The log has the reasons.
        stoppedLanes: stoppedLanes.map(({ attempt, lane }) => ({ lane, attempt })),
        misorderedAggregates: misordered.reduce((sum, { aggregates }) => sum + aggregates, 0),
        pausedTopics: pausedTopics.map(({ attempt, lastingMillis, nextTryMillis, partitions, topic }) => ({
          topic,
          attempt,
          partitions,
          sinceSeconds: lastingMillis / 1_000,
          nextTrySeconds: nextTryMillis / 1_000
        })),
        // A refused event waits for an operator, and is no outage: all other events flow.
        parkedEvents: parked,
        deadLetters: dead
      }
    })
    yield* add({ name: "dispatcher", report })
  })
)
