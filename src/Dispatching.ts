/**
 * The dispatcher as layers: the plain steps, and what decorates them.
 *
 * A decorator is taken away by deleting its line, together with what reads its state (http/DispatcherHealth.ts, and the layers in {@link besides}). The
 * rest is right: without that guard, slower, or unmeasured. test/outbox/Plain.test.ts runs the dispatcher without any of them.
 */
import { Effect, Layer } from "effect"
import { BrokerReachability } from "./guards/BrokerReachability.ts"
import { OutOfOrderVersions } from "./guards/OutOfOrderVersions.ts"
import { PartitionPauses } from "./guards/PartitionPauses.ts"
import * as SizeLimits from "./guards/SizeLimits.ts"
import * as CheckedTopics from "./operations/CheckedTopics.ts"
import * as OutboxMetrics from "./operations/OutboxMetrics.ts"
import * as PublishSpans from "./operations/PublishSpans.ts"
import { Dispatcher } from "./outbox/Dispatcher.ts"
import { Holds } from "./outbox/holds/Holds.ts"
import { LaneOwnership } from "./outbox/LaneOwnership.ts"
import { LaneWorkers } from "./outbox/LaneWorkers.ts"
import { Looks } from "./outbox/Looks.ts"
import { Publisher } from "./outbox/Publisher.ts"
import { Queue } from "./outbox/Queue.ts"
import { ControlSettings } from "./platform/ControlConnection.ts"
import * as Database from "./postgres/Database.ts"
import { LowWaterMarks } from "./postgres/fast/LowWaterMarks.ts"

/** Connections that a dispatcher can use at once: for a fetch, a mark, a poll and samples, and six for the holds of its senders. */
const dispatcherConnections = 10

/**
 * How Postgres is to plan on those connections. To its statistics the queue is a small table, which it would rather read from one end to
 * the other, or by a bitmap; but each look is a probe of the index, and only a plain index scan marks the entries of deleted rows as dead,
 * so that the next one steps past them. Without a generic plan Postgres would plan each statement anew for the length of its arrays, which costs
 * more than running it.
 */
const dispatcherPlans: Readonly<Record<string, string>> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_bitmapscan: "off"
}

/**
 * The dispatcher's own connections: requests that queue for theirs are no reason for events to wait.
 *
 * A process that freezes in the middle of a transaction loses the rows that it has locked there when it loses its lanes, after the session
 * timeout: its successor marks these rows, and would wait for them.
 */
export const dispatcherDatabase = Layer.unwrap(
  Effect.gen(function* () {
    const { sessionTimeoutMillis } = yield* ControlSettings
    const bounds = yield* Database.lockBounds(sessionTimeoutMillis)
    return Database.layerReserved("dispatcher", dispatcherConnections, { ...dispatcherPlans, ...bounds })
  })
)

/** The plain steps. */
export const plainSteps = Layer.mergeAll(Queue.layer, Publisher.layer, Holds.layer)

/** The steps with everything that decorates them, the last one innermost. */
export const steps = SizeLimits.layer.pipe(
  Layer.provideMerge(PartitionPauses.layer),
  Layer.provideMerge(OutOfOrderVersions.layer),
  Layer.provideMerge(LowWaterMarks.layerQueue),
  Layer.provideMerge(OutboxMetrics.layerCounts),
  Layer.provideMerge(OutboxMetrics.layerLatency),
  Layer.provideMerge(PublishSpans.layer),
  Layer.provideMerge(CheckedTopics.layer),
  Layer.provideMerge(plainSteps),
  Layer.provideMerge(Looks.layer)
)

/** What runs beside the work on the lanes. */
const besides = Layer.mergeAll(BrokerReachability.layer, LowWaterMarks.layerRaising, OutboxMetrics.layerSizes)

/** A dispatcher with these steps. */
export const over = <A, E, R>(steps: Layer.Layer<A, E, R>) =>
  Layer.merge(LaneWorkers.layer, besides).pipe(
    Layer.provideMerge(Layer.merge(Dispatcher.layer, LaneOwnership.layer)),
    Layer.provideMerge(steps)
  )

/** The whole dispatcher. */
export const layer = over(steps)
