/** The connections with which Kafka is asked how far groups have read: few, however many ask and however often. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { inject } from "vitest"
import { newTopic, numbers, publish } from "../../contracts/BrokerHarness.ts"
import * as KafkaMember from "./KafkaMember.ts"

const bootstrapServers = inject("kafkaBrokers")
if (bootstrapServers === null) {
  const missing = `none of KafkaProgress.test.ts ran (connections of lag): ${inject("kafkaMissing")}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

/** As many consumers as the service has. */
const groups = ["receipts", "inventory", "billing", "analytics"]

describe.skipIf(bootstrapServers === null)("the progress of groups", () => {
  it.live("is asked for through one client, which is kept from look to look, and replaced when it breaks", () =>
    Effect.gen(function* () {
      const { broker, progress, proxy } = yield* KafkaMember.make(bootstrapServers!)
      const { topic } = yield* newTopic({ broker, kill: Effect.void, progress })
      yield* publish({ broker, kill: Effect.void, progress }, topic, numbers(0, 3))
      const accepted = Effect.map(proxy.counters, ({ accepted }) => accepted)
      const look = Effect.forEach(
        groups,
        (group) => Effect.map(progress.of(`${topic}-${group}`, topic), ([partition]) => partition?.lag),
        { concurrency: "unbounded" }
      )
      const opens = Effect.fnUntraced(function* (what: typeof look) {
        const before = yield* accepted
        assert.deepStrictEqual(
          yield* what,
          groups.map(() => 3)
        )
        return (yield* accepted) - before
      })

      // One to find the cluster, and one to its only node.
      assert.isAtMost(yield* opens(look), 2)
      assert.strictEqual(yield* opens(look), 0)
      yield* proxy.reset
      assert.isAtMost(yield* opens(look), 4)
      assert.strictEqual(yield* opens(look), 0)
    }).pipe(Effect.scoped)
  )

  it.live("tells of partitions and records that came after the client", () =>
    Effect.gen(function* () {
      const { broker, progress } = yield* KafkaMember.make(bootstrapServers!)
      const member = { broker, kill: Effect.void, progress }
      const { group, topic } = yield* newTopic(member, 2)
      const lags = Effect.map(progress.of(group, topic), (all) => all.map(({ lag }) => lag))
      assert.deepStrictEqual(yield* lags, [0, 0])
      yield* publish(member, topic, numbers(0, 3), 1)
      assert.deepStrictEqual(yield* lags, [0, 3])
      const other = yield* newTopic(member)
      assert.deepStrictEqual(
        (yield* progress.of(group, other.topic)).map(({ lag }) => lag),
        [0]
      )
    }).pipe(Effect.scoped)
  )
})
