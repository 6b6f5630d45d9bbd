/**
 * The dispatcher as layers: the plain steps, and their decorators.
 *
 * A decorator is removed by deleting its line, together with the readers of its state (http/DispatcherHealth.ts, and the layers in {@link besides}).
 * The rest stays correct: without that guard, slower, or unmeasured. test/outbox/Plain.test.ts runs the dispatcher without decorators.
 */
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { BrokerReachability } from "./guards/BrokerReachability.ts"
import { OutOfOrderVersions } from "./guards/OutOfOrderVersions.ts"
import { PartitionPauses } from "./guards/PartitionPauses.ts"
import * as SizeLimits from "./guards/SizeLimits.ts"
import * as ArchiveNote from "./operations/ArchiveNote.ts"
import * as CheckedTopics from "./operations/CheckedTopics.ts"
import * as OutboxMetrics from "./operations/OutboxMetrics.ts"
import * as PublishSpans from "./operations/PublishSpans.ts"
import * as PausedTopics from "./operations/pauses/PausedTopics.ts"
import { Dispatcher } from "./outbox/Dispatcher.ts"
import * as Parking from "./outbox/holds/Parking.ts"
import { LaneOwnership } from "./outbox/LaneOwnership.ts"
import { LaneWorkers } from "./outbox/LaneWorkers.ts"
import { PollRequests } from "./outbox/PollRequests.ts"
import { Publisher } from "./outbox/Publisher.ts"
import { Queue } from "./outbox/Queue.ts"
import { TurnConnection } from "./outbox/TurnConnection.ts"
import { ControlSettings } from "./platform/ControlConnection.ts"
import { PoolSettings } from "./postgres/Database.ts"
import * as ReservedPool from "./postgres/ReservedPool.ts"
import * as LaneWatch from "./postgres/fast/LaneWatch.ts"
import { LowWaterMarks } from "./postgres/fast/LowWaterMarks.ts"
import * as SmallTurns from "./postgres/fast/SmallTurns.ts"
import * as WarmUp from "./postgres/fast/WarmUp.ts"

/** Connections that a dispatcher can use at once beside its turns: for a late mark, a poll and samples, and six for the holds of its senders. */
const dispatcherConnections = 9

/**
 * How Postgres plans on these connections. Each query is a probe of an index. But by its statistics the queue is a small table, which the planner
 * would read as a whole or by a bitmap. Only a plain index scan marks the entries of deleted rows as dead, so that the next one skips them. Without
 * a generic plan Postgres would plan each statement anew for the length of its arrays, which costs more than running it.
 */
const dispatcherPlans: Readonly<Record<string, string>> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_bitmapscan: "off"
}

/**
 * A statement of a turn that waits for a lock on a row keeps all lanes waiting. After this time its lane is tried again apart from them, with the whole
 * limit of {@link parameters}. Marks of one process never wait for each other.
 */
const turnLockMillis = 2_000

/**
 * If a process freezes inside a transaction, it loses its lanes after the session timeout, and the locks of that transaction with them. Otherwise its
 * successor, which marks the same rows, would wait for the locks.
 */
const parameters = Effect.gen(function* () {
  const { sessionTimeoutMillis } = yield* ControlSettings
  return { ...dispatcherPlans, ...(yield* ReservedPool.lockBounds(sessionTimeoutMillis)) }
})

/**
 * One connection for turns, on which a mark and a fetch share a packet under load. Without this layer each has a connection of its own, and a lane with a
 * backlog may find only what is being marked.
 */
export const turnConnection = Layer.effect(TurnConnection, SqlClient.SqlClient).pipe(
  Layer.provide(
    Layer.unwrap(
      Effect.map(parameters, (found) =>
        ReservedPool.layer("turns", 1, { ...found, lock_timeout: String(turnLockMillis) })
      )
    )
  ),
  Layer.provide(
    Layer.effect(
      PoolSettings,
      PoolSettings.useSync((settings) => ({ ...settings, isPipelined: true }))
    )
  )
)

/** The dispatcher's own connections, so that events don't wait when requests queue for connections. */
export const dispatcherDatabase = Layer.merge(
  Layer.unwrap(Effect.map(parameters, (found) => ReservedPool.layer("dispatcher", dispatcherConnections, found))),
  turnConnection
)

/** The plain steps. */
export const plainSteps = Layer.mergeAll(Queue.layer, Publisher.layer, Parking.layer)

/** The steps with all their decorators, the last one innermost. */
export const steps = SizeLimits.layer.pipe(
  Layer.provideMerge(PausedTopics.layer),
  Layer.provideMerge(PartitionPauses.layer),
  Layer.provideMerge(OutOfOrderVersions.layer),
  Layer.provideMerge(LowWaterMarks.layerQueue),
  Layer.provideMerge(OutboxMetrics.layerCounts),
  Layer.provideMerge(OutboxMetrics.layerLatency),
  Layer.provideMerge(PublishSpans.layer),
  Layer.provideMerge(CheckedTopics.layer),
  Layer.provideMerge(SmallTurns.layer),
  Layer.provideMerge(plainSteps),
  Layer.provideMerge(PollRequests.layer)
)

/** The layers beside the work on the lanes. */
const besides = Layer.mergeAll(
  ArchiveNote.layer,
  BrokerReachability.layer,
  LowWaterMarks.layerRaising,
  OutboxMetrics.layerSizes
)

/** A dispatcher with these steps. */
export const over = <A, E, R>(steps: Layer.Layer<A, E, R>) =>
  LaneWorkers.layer.pipe(
    // Without this line other processes send a wake-up for nearly each event, however fast they come.
    Layer.provide(LaneWatch.layer),
    Layer.merge(besides),
    Layer.provideMerge(Layer.merge(Dispatcher.layer, LaneOwnership.layer)),
    // Before the first lane is taken, with the statements of {@link steps}. Without this line the first events of a process wait for connections,
    // plans and compiled code.
    Layer.provideMerge(Layer.provide(WarmUp.layer, Layer.provide(SmallTurns.layer, Queue.layer))),
    Layer.provideMerge(steps)
  )

/** The whole dispatcher. */
export const layer = over(steps)
