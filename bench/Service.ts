/** A dispatcher as the service composes it, on the measured database and broker. */
import { Effect, Layer, References } from "effect"
import * as KafkaBroker from "../src/brokers/kafkajs/KafkaBroker.ts"
import { TopicSettings } from "../src/brokers/Broker.ts"
import * as Dispatching from "../src/Dispatching.ts"
import { TopicChecks } from "../src/operations/TopicChecks.ts"
import { Outbox } from "../src/outbox/Outbox.ts"
import { Queue, QueueSettings } from "../src/outbox/Queue.ts"
import { LaneWakeup } from "../src/outbox/LaneWakeup.ts"
import { Ids } from "../src/platform/Ids.ts"
import { ControlConnection } from "../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../src/platform/DatabaseSettings.ts"
import { LowWaterMarks } from "../src/postgres/fast/LowWaterMarks.ts"
import * as QuietWakeups from "../src/postgres/fast/QuietWakeups.ts"
import * as ReservedPool from "../src/postgres/ReservedPool.ts"
import { Ownership } from "../src/platform/Ownership.ts"
import { Wakeups } from "../src/platform/Wakeups.ts"
import { Fibers } from "../src/platform/Supervised.ts"
import { Environment, pool } from "./Environment.ts"

/** The service's default, which divides the 64 lanes. */
export const partitions = 8

const quiet = Layer.succeed(References.MinimumLogLevel, "Error")

export const platform = Ownership.layer.pipe(
  Layer.provideMerge(Wakeups.layer),
  Layer.provideMerge(ControlConnection.layer),
  Layer.provideMerge(Layer.merge(Fibers.layer, Ids.layer)),
  Layer.provideMerge(pool)
)

/** Connections beside the pool, as the service gives them to work that must not wait for requests. */
export const reservedFor = (purpose: string, connections: number, plans: Readonly<Record<string, string>>) =>
  Layer.unwrap(
    Environment.useSync(({ databaseUrl }) =>
      ReservedPool.layer(purpose, connections, plans).pipe(
        Layer.provide(DatabaseSettings.layerOf({ url: databaseUrl }))
      )
    )
  )

const reserved = Layer.unwrap(
  Environment.useSync(({ databaseUrl }) =>
    Dispatching.dispatcherDatabase.pipe(Layer.provide(DatabaseSettings.layerOf({ url: databaseUrl })))
  )
)

export const kafka = Layer.unwrap(
  Environment.useSync(({ brokers }) =>
    KafkaBroker.layer.pipe(
      Layer.provide(
        Layer.succeed(KafkaBroker.KafkaSettings, {
          brokers: brokers.split(","),
          prefix: "",
          createTopics: true,
          replication: 1,
          sendTimeoutMillis: 3_000,
          sessionTimeoutMillis: 10_000,
          clientId: "bench"
        })
      )
    )
  )
)

/** A writer and a dispatcher in one process. */
export const dispatcher = (options: {
  readonly archive: boolean
  /** Changes the broker, for a block that observes it. */
  readonly broker?: (layer: typeof kafka) => typeof kafka
}) =>
  Layer.mergeAll(Layer.provide(Dispatching.layer, reserved), Outbox.layer).pipe(
    Layer.provideMerge(TopicChecks.layer),
    Layer.provideMerge(Layer.mergeAll(LaneWakeup.layer, options.broker?.(kafka) ?? kafka)),
    Layer.provideMerge(platform),
    Layer.provideMerge(
      Layer.mergeAll(
        quiet,
        Layer.succeed(TopicSettings, { partitions }),
        Layer.effect(
          QueueSettings,
          Effect.map(QueueSettings, (defaults) => ({ ...defaults, archive: options.archive }))
        )
      )
    ),
    Layer.fresh
  )

/** The dispatcher's statements without a dispatcher, on connections like its own. */
export const queue = (options: { readonly archive: boolean; readonly batchSize?: number }) =>
  Layer.provide(Layer.provideMerge(LowWaterMarks.layerQueue, Queue.layer), reserved).pipe(
    Layer.provideMerge(pool),
    Layer.provideMerge(
      Layer.effect(
        QueueSettings,
        Effect.map(QueueSettings, (defaults) => ({ ...defaults, ...options }))
      )
    ),
    Layer.fresh
  )

/** A process that writes and does not dispatch. */
export const writer = Outbox.layer.pipe(
  Layer.provideMerge(QuietWakeups.layer),
  Layer.provideMerge(platform),
  Layer.provideMerge(quiet),
  Layer.fresh
)
