/**
 * What one process of the service has of the mechanism, on a test's own database: build it twice for two processes.
 */
import { Layer } from "effect"
import * as Outbox from "../../src/messaging/outbox/Outbox.ts"
import { Wakeup } from "../../src/messaging/outbox/Wakeup.ts"
import { ControlConnection } from "../../src/platform/database/ControlConnection.ts"
import * as Database from "../../src/platform/database/Database.ts"
import { Shares } from "../../src/platform/database/Shares.ts"
import { Signals } from "../../src/platform/Signals.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { TestDatabase } from "./TestDatabase.ts"

/** Pool, control connection, signals and shares of one process. */
export const platform = Layer.fresh(
  Shares.layer.pipe(
    Layer.provideMerge(Signals.layer),
    Layer.provideMerge(ControlConnection.layer),
    Layer.provideMerge(Layer.mergeAll(Database.layer, Fibers.layer)),
    Layer.provideMerge(Layer.unwrap(TestDatabase.useSync(({ url }) => Database.DatabaseSettings.layerOf({ url, maxConnections: 8 }))))
  )
)

/** The outbox of one process, without a dispatcher. */
export const outbox = Outbox.Outbox.layer.pipe(
  Layer.provideMerge(Wakeup.layer),
  Layer.provideMerge(platform)
)
