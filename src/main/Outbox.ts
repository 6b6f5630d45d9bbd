/** The outbox: its append side, which every process has, and its dispatcher. */
import { Layer } from "effect"
import { eventTypes } from "../domain/Events.ts"
import * as DispatcherHealth from "../http/DispatcherHealth.ts"
import { History } from "../operations/History.ts"
import * as OutboxMetrics from "../operations/OutboxMetrics.ts"
import * as PoolMetrics from "../operations/PoolMetrics.ts"
import * as PublishSpans from "../operations/PublishSpans.ts"
import { Dispatcher } from "../outbox/Dispatcher.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import { dispatcherDatabase, LaneWorkers } from "../outbox/LaneWorkers.ts"
import { Outbox } from "../outbox/Outbox.ts"
import { OutboxQueue } from "../outbox/OutboxQueue.ts"
import { Publisher } from "../outbox/Publisher.ts"

/** Writes events in the transaction of their aggregate, and reads the published ones. */
export const outbox = Layer.mergeAll(Outbox.layer, History.layer, OutboxMetrics.layerZero(eventTypes)).pipe(
  Layer.provideMerge(LaneWakeup.layer)
)

/** Sends what {@link outbox} has stored: fetch, send, mark. */
export const dispatcher = DispatcherHealth.layer.pipe(
  Layer.provide(LaneWorkers.layer),
  Layer.provide(Layer.provide(Dispatcher.layer, dispatcherDatabase)),
  // Without this line no trace shows when an event was published.
  Layer.provide(PublishSpans.layer),
  // Without this line nobody sees how long an event takes from its commit to its acknowledgement.
  Layer.provide(OutboxMetrics.layerLatency),
  Layer.provide(Publisher.layerNoDeps),
  Layer.provide(Layer.provide(OutboxQueue.layer, dispatcherDatabase)),
  // Without this line nobody sees that the dispatcher's pool runs dry.
  Layer.merge(Layer.provide(PoolMetrics.layer("dispatcher"), dispatcherDatabase))
)
