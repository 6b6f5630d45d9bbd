/** How far consumers are behind, also while the broker gives no answer: then that is said, and soon. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { GroupProgress } from "../../src/brokers/GroupProgress.ts"
import * as KafkaProgress from "../../src/brokers/kafkajs/KafkaProgress.ts"
import { KafkaSettings } from "../../src/brokers/kafkajs/KafkaClient.ts"
import { ConsumerLag } from "../../src/operations/reports/ConsumerLag.ts"
import { freePorts } from "../support/TcpProxy.ts"

const consumers = [
  { name: "billing", topic: "orders" },
  { name: "receipts", topic: "orders" }
]

const over = (of: GroupProgress["Service"]["of"]) =>
  ConsumerLag.layer(consumers).pipe(Layer.provide(Layer.succeed(GroupProgress, { of })))

it.effect("adds up the partitions of each consumer, and knows each by its name", () =>
  Effect.gen(function* () {
    const report = yield* ConsumerLag
    const billing = {
      consumer: "billing",
      topic: "orders",
      lag: 7,
      unknown: null,
      partitions: [
        { partition: 0, end: "9007199254740993", committed: "9007199254740990", lag: 3, owner: "4711@here" },
        { partition: 1, end: "4", committed: null, lag: 4, owner: null }
      ]
    }
    assert.deepStrictEqual(yield* report.all, [billing, { ...billing, consumer: "receipts" }])
    assert.deepStrictEqual(yield* report.of("billing"), billing)
    assert.isUndefined(yield* report.of("nobody"))
  }).pipe(
    Effect.provide(
      over(() =>
        Effect.succeed([
          { partition: 0, end: 9_007_199_254_740_993n, committed: 9_007_199_254_740_990n, lag: 3, owner: "4711@here" },
          { partition: 1, end: 4n, committed: null, lag: 4, owner: null }
        ])
      )
    )
  )
)

it.effect("a broker that hangs is unknown after five seconds, for all consumers together", () =>
  Effect.gen(function* () {
    const report = yield* ConsumerLag
    const asked = yield* Effect.forkChild(report.all)
    yield* TestClock.adjust("5 seconds")
    assert.isDefined(asked.pollUnsafe())
    const found = yield* Fiber.join(asked)
    assert.deepStrictEqual(
      found.map(({ lag, partitions }) => [lag, partitions.length]),
      [
        [null, 0],
        [null, 0]
      ]
    )
  }).pipe(Effect.provide(over(() => Effect.never)))
)

it.live("a Kafka that is not there is unknown, and the reason is told", () =>
  Effect.gen(function* () {
    const [port] = yield* freePorts(1)
    const settings = Layer.succeed(KafkaSettings, {
      brokers: [`127.0.0.1:${port}`],
      prefix: "",
      createTopics: false,
      replication: 1,
      sendTimeoutMillis: 1_000,
      sessionTimeoutMillis: 6_000,
      clientId: "test"
    })
    const report = ConsumerLag.layer(consumers).pipe(Layer.provide(KafkaProgress.layer), Layer.provide(settings))
    const found = yield* Effect.provide(
      ConsumerLag.use(({ all }) => all),
      report
    )
    for (const { lag, unknown } of found) {
      assert.isNull(lag)
      assert.include(unknown, "broker unavailable: progress")
    }
  })
)
