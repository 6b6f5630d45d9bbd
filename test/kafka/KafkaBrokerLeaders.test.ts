import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, References, Schedule } from "effect"
import { randomUUID } from "node:crypto"
import { newTopic, numbers, publish, read, textOf, within } from "../contracts/BrokerHarness.ts"
import * as KafkaSource from "../support/KafkaSource.ts"
import * as LocalKafka from "../support/LocalKafka.ts"
import * as KafkaMember from "./KafkaMember.ts"

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `none of KafkaBrokerLeaders.test.ts ran (leaders that move between three nodes): ${local.missing}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const partitions = 6

/** Without the guard in KafkaConsumer.ts some ten of these moves are enough to lose records. */
const moves = 30

/** Long enough for a move to be noticed by a fetch, so that the next one is another story. */
const moveInterval = "250 millis"

class Cluster extends Context.Service<Cluster, LocalKafka.LocalKafka>()("test/kafka/Cluster") {
  static readonly layer = Layer.effect(Cluster, LocalKafka.make({ nodes: 3 }))
}

describe.skipIf(local._tag === "Unavailable")("KafkaBroker over three nodes", () => {
  layer(Layer.merge(Cluster.layer, Layer.succeed(References.MinimumLogLevel, "Error")), {
    excludeTestServices: true,
    timeout: 120_000
  })((it) => {
    it.effect("while leaders move, nothing is lost between a publisher and a reader, and nothing overtakes", () =>
      Effect.gen(function*() {
        const { bootstrapServers } = yield* Cluster
        const it = yield* KafkaMember.makeDirect({ brokers: bootstrapServers.split(","), replication: 3 })
        const { group, topic } = yield* newTopic(it, partitions)
        const reader = yield* read(it, { topic, group, sliceSize: 10 })
        let moving = true
        /** Publishes 0, 1, 2 … until the leaders stand still; what it sends again may be there twice. */
        const publisher = Effect.fnUntraced(function*(partition: number) {
          let sent = 0
          for (; moving || sent === 0; sent += 5) {
            yield* publish(it, topic, numbers(sent, 5), partition).pipe(Effect.retry(Schedule.spaced("50 millis")))
          }
          yield* publish(it, topic, ["end"], partition).pipe(Effect.retry(Schedule.spaced("50 millis")))
          return sent
        })
        const publishers = yield* Effect.forEach(numbers(0, partitions), (partition) => Effect.forkScoped(publisher(Number(partition))))
        const admin = yield* KafkaMember.admin(bootstrapServers)
        for (let move = 0; move < moves; move++) {
          // The new replicas leave out a node in turn: now and then the leader.
          const replicas = [1, 2, 3].filter((node) => node !== 1 + (move % 3))
          yield* Effect.promise(() =>
            admin.alterPartitionReassignments({
              topics: [{ topic: KafkaMember.prefix + topic, partitionAssignment: [{ partition: move % partitions, replicas }] }]
            }).catch(() => undefined)
          )
          yield* Effect.sleep(moveInterval)
        }
        moving = false
        const sent = yield* within("the publishers", Effect.forEach(publishers, Fiber.join))
        // A duplicated "end" is read before the real end of another partition: count the partitions, not the records.
        const firsts = sent.map((): Set<string> => new Set())
        yield* within(
          "every partition's end",
          Effect.gen(function*() {
            while (firsts.some((first) => !first.has("end"))) {
              const [seen] = yield* reader.take(1)
              firsts[seen!.partition]!.add(textOf(seen!.record))
            }
          })
        )
        for (const [partition, first] of firsts.entries()) {
          assert.deepStrictEqual([...first], [...numbers(0, sent[partition]!), "end"], `partition ${partition}`)
        }
        yield* reader.stop
        // What was committed stands, and nothing in front of it is left over.
        const marker = randomUUID()
        yield* publish(it, topic, [marker])
        const next = yield* read(it, { topic, group })
        const rest = yield* next.takeUntil(marker)
        assert.deepStrictEqual([...new Set(rest.map((seen) => textOf(seen.record)))], [marker])
      }), 120_000)
  })
})
