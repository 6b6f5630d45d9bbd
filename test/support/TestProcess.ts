/**
 * The mechanism's layers of one process, on a test's own database: build it twice for two processes.
 */
import { Effect, Layer, References } from "effect"
import { type Batch, Broker } from "../../src/brokers/Broker.ts"
import * as EmbeddedBroker from "../../src/brokers/embedded/EmbeddedBroker.ts"
import * as Dispatching from "../../src/Dispatching.ts"
import { TopicChecks } from "../../src/operations/TopicChecks.ts"
import * as Outbox from "../../src/outbox/Outbox.ts"
import { LaneWakeup } from "../../src/outbox/LaneWakeup.ts"
import { Ids } from "../../src/platform/Ids.ts"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Ownership } from "../../src/platform/Ownership.ts"
import { Wakeups } from "../../src/platform/Wakeups.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { TestDatabase } from "./TestDatabase.ts"

/** No logs, for tests that cause failures on purpose. */
export const quiet = Layer.succeed(References.MinimumLogLevel, "None")

/** Pool, ids, control connection, wake-ups and ownership of one process. */
export const platform = Layer.fresh(
  Ownership.layer.pipe(
    Layer.provideMerge(Wakeups.layer),
    Layer.provideMerge(ControlConnection.layer),
    Layer.provideMerge(Ids.layer),
    Layer.provideMerge(Layer.mergeAll(Layer.provide(Database.layer, TestDatabase.fastBegin), Fibers.layer)),
    Layer.provideMerge(
      Layer.unwrap(TestDatabase.useSync(({ url }) => DatabaseSettings.layerOf({ url, maxConnections: 8 })))
    )
  )
)

/** The outbox of one process, without a dispatcher. */
export const outbox = Outbox.Outbox.layer.pipe(Layer.provideMerge(LaneWakeup.layer), Layer.provideMerge(platform))

/** The embedded broker, as the service has it. */
export const broker = EmbeddedBroker.layer

/** The dispatcher's steps with all their decorators, over the embedded broker as `change` changes it. */
export const dispatcherStepsOver = <R>(change: (layer: typeof broker) => Layer.Layer<Broker, never, R>) =>
  Dispatching.steps.pipe(Layer.provideMerge(TopicChecks.layer), Layer.provideMerge(change(broker)))

/** A dispatcher over the embedded broker as `change` changes it. */
export const dispatcherOver = <R>(change: (layer: typeof broker) => Layer.Layer<Broker, never, R>) =>
  Dispatching.over(dispatcherStepsOver(change)).pipe(Layer.provide(Dispatching.turnConnection))

/** Changes a broker's `publish`; the new function gets the real broker. */
export const publishing =
  (publish: (batch: Batch, broker: Broker["Service"]) => ReturnType<Broker["Service"]["publish"]>) =>
  <E, R>(layer: Layer.Layer<Broker, E, R>) =>
    Layer.effect(
      Broker,
      Effect.map(Broker, (broker) => Broker.of({ ...broker, publish: (batch) => publish(batch, broker) }))
    ).pipe(Layer.provide(layer))

/** A dispatcher over the embedded broker. */
export const dispatcher = dispatcherOver((layer) => layer)
