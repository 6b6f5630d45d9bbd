/**
 * A consumer as a process of its own: the mechanism's layers, and a subscriber that writes one row for each event, and fails for some
 * events for a while. Started by Fleet.ts.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect, Layer, Random, References, Result } from "effect"
import * as KafkaBroker from "../../src/brokers/kafkajs/KafkaBroker.ts"
import * as Consumer from "../../src/inbox/Consumer.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import * as Consumers from "../../src/main/Consumers.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import * as Counters from "./Counters.ts"
import * as FleetProtocol from "./FleetProtocol.ts"
import * as TestProcess from "./TestProcess.ts"

/** The share of events that fail in an attempt. */
const failing = 0.01

const subscriber: Subscriber = {
  name: "one",
  topic: Counters.topic,
  firstSight: "from-version-1",
  handle: Effect.fnUntraced(function* ({ aggregateId, aggregateVersion }) {
    const { sql } = yield* Transaction
    yield* sql`INSERT INTO effects (consumer, id, version) VALUES ('one', ${aggregateId}, ${aggregateVersion}::int4)`
    if ((yield* Random.next) < failing) return yield* Effect.fail(new Error("out of paper"))
  })
}

const program = Effect.gen(function* () {
  const settings = yield* FleetProtocol.settings
  const broker = KafkaBroker.layer.pipe(
    Layer.provide(
      Layer.succeed(KafkaBroker.KafkaSettings, {
        brokers: (settings.kafka ?? "").split(","),
        prefix: settings.kafkaPrefix,
        createTopics: true,
        replication: 1,
        sendTimeoutMillis: settings.sendTimeoutMillis,
        sessionTimeoutMillis: settings.sessionTimeoutMillis,
        clientId: "fleet"
      })
    )
  )
  yield* Layer.build(
    Consumer.layer(subscriber).pipe(
      // As in the service: a frozen process keeps its row locks for a bounded time, and a slice that waits for them gives up earlier.
      Layer.provide(Layer.provide(Consumers.steps, Consumers.database)),
      Layer.provide(Inbox.layer),
      Layer.provide(broker),
      Layer.provide(TestProcess.platform),
      Layer.provide(
        Layer.mergeAll(
          FaultInjection.layer(Result.getOrThrow(FaultInjection.parse(settings.faults))),
          Layer.succeed(Consumer.ConsumerSettings, { sliceSize: settings.batchSize }),
          Layer.succeed(HoldSettings, { retryBaseMillis: 20, maxAttempts: 50 })
        )
      ),
      Layer.provide(FleetProtocol.layerOf(settings)),
      Layer.provide(
        Layer.succeed(
          References.MinimumLogLevel,
          yield* Config.LogLevel("LOG_LEVEL").pipe(Config.withDefault("None" as const))
        )
      )
    )
  )
  yield* Console.log(JSON.stringify({ ready: true, url: null }))
  return yield* Effect.never
}).pipe(Effect.scoped)

NodeRuntime.runMain(program)
