/** The outbox: its append side, which every process has, and its dispatcher. */
import { Layer } from "effect"
import * as Dispatching from "../Dispatching.ts"
import { eventTypes } from "../domain/Events.ts"
import * as DispatcherHealth from "../http/DispatcherHealth.ts"
import { History } from "../operations/History.ts"
import * as OutboxMetrics from "../operations/OutboxMetrics.ts"
import * as PoolMetrics from "../operations/PoolMetrics.ts"
import { Outbox } from "../outbox/Outbox.ts"
import * as QuietWakeups from "../postgres/fast/QuietWakeups.ts"
import { WarmUpSettings } from "../postgres/fast/WarmUp.ts"
import { topicNames } from "./Names.ts"

/** Writes events in the transaction of their aggregate, and reads the published ones. */
export const outbox = Layer.mergeAll(Outbox.layer, History.layer, OutboxMetrics.layerZero(eventTypes)).pipe(
  Layer.provideMerge(QuietWakeups.layer)
)

const warmUp = Layer.effect(
  WarmUpSettings,
  WarmUpSettings.useSync((defaults) => ({ ...defaults, topics: topicNames }))
)

/** Sends what {@link outbox} has stored: fetch, send, mark. */
export const dispatcher = DispatcherHealth.layer.pipe(
  Layer.provide(Layer.provide(Dispatching.layer, warmUp)),
  // Without this line nobody sees that the dispatcher's pool runs dry.
  Layer.merge(PoolMetrics.layer("dispatcher")),
  Layer.provide(Dispatching.dispatcherDatabase)
)
