import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Queue, References, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { type Admin, Kafka, logLevel } from "kafkajs"
import { randomUUID } from "node:crypto"
import type { Slice } from "../../../src/brokers/Broker.ts"
import {
  consume,
  newTopic,
  numbers,
  publish,
  publishStubbornly,
  read,
  textOf,
  within
} from "../../contracts/BrokerHarness.ts"
import { LaneWorkersSettings } from "../../../src/outbox/LaneWorkers.ts"
import { PartitionPauses, PauseSettings } from "../../../src/guards/PartitionPauses.ts"
import * as KafkaBroker from "../../../src/brokers/kafkajs/KafkaBroker.ts"
import * as KafkaErrors from "../../../src/brokers/kafkajs/KafkaErrors.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import * as Counters from "../../support/Counters.ts"
import * as KafkaSource from "../../support/KafkaSource.ts"
import * as Ledger from "../../support/Ledger.ts"
import * as LocalKafka from "../../support/LocalKafka.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import { topicEnds } from "../../support/topicEnds.ts"
import * as KafkaMember from "./KafkaMember.ts"

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `none of KafkaBrokerLeaders.test.ts ran (leaders that move between three nodes): ${local.missing}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const partitions = 6

/** Without `dropBatchesOfOldGenerations` some ten of these moves are enough to lose records. */
const few = { partitions, moves: 30, batchPause: "20 millis" } as const
/** kafkajs hands 16 batches of a fetch over side by side. The others wait, and the group may rejoin meanwhile. */
const many = { partitions: 60, moves: 60, batchPause: "200 millis" } as const

/** Long enough for a fetch to notice a move before the next one. */
const moveInterval = "250 millis"

/** With a batch's pause it keeps a reader a few slices behind. */
const slicePause = "30 millis"

class Cluster extends Context.Service<Cluster, Effect.Success<ReturnType<typeof LocalKafka.makeProxied>>>()(
  "test/kafka/Cluster"
) {
  static readonly layer = Layer.effect(Cluster, LocalKafka.makeProxied({ nodes: 3 }))
}

/** Creates a topic with the given replicas, and waits until all partitions serve: brokers learn of a topic one after the other. */
const makeTopic = Effect.fnUntraced(function* (
  servers: string,
  admin: Admin,
  topic: string,
  replicas: ReadonlyArray<ReadonlyArray<number>>,
  configEntries: Array<{ name: string; value: string }> = []
) {
  const replicaAssignment = replicas.map((nodes, partition) => ({ partition, replicas: [...nodes] }))
  yield* Effect.promise(() =>
    // kafkajs' own wait asks one broker, and fails where that one does not know the topic yet.
    admin.createTopics({ waitForLeaders: false, topics: [{ topic, replicaAssignment, configEntries }] })
  )
  const client = new Kafka({ clientId: "maker", brokers: servers.split(","), logLevel: logLevel.NOTHING })
  assert.strictEqual((yield* topicEnds(client, topic)).length, replicas.length)
})

/** Moves the partition to the two nodes that do not lead it. */
const moveLeader = async (admin: Admin, wireTopic: string, partition: number) => {
  const { topics } = await admin.fetchTopicMetadata({ topics: [wireTopic] })
  const leader = topics[0]!.partitions.find(({ partitionId }) => partitionId === partition)!.leader
  const replicas = [1, 2, 3].filter((node) => node !== leader)
  await admin.alterPartitionReassignments({
    topics: [{ topic: wireTopic, partitionAssignment: [{ partition, replicas }] }]
  })
}

describe.skipIf(local._tag === "Unavailable")("KafkaBroker over three nodes", () => {
  layer(Layer.merge(Cluster.layer, Layer.succeed(References.MinimumLogLevel, "Error")), {
    excludeTestServices: true,
    timeout: 120_000
  })((it) => {
    it.effect.each([few, many])(
      "while leaders move, no record of $partitions partitions is lost or overtaken between a publisher and a reader",
      ({ batchPause, moves, partitions }) =>
        Effect.gen(function* () {
          const { bootstrapServers } = yield* Cluster
          const it = yield* KafkaMember.makeDirect({ brokers: bootstrapServers.split(","), replication: 3 })
          const { group, topic } = yield* newTopic(it, partitions)
          const queue = yield* Queue.unbounded<Slice>()
          const fiber = yield* consume(it, { topic, group, sliceSize: 10 }, (slice) =>
            // Slow enough that fetched, uncommitted records are buffered. A new generation discards them.
            Effect.sleep(slicePause).pipe(Effect.andThen(slice.commit), Effect.andThen(Queue.offer(queue, slice)))
          )
          const leaders = { moving: true }
          /** Publishes 0, 1, 2 … until the leaders move no more. Retried records may be duplicated. */
          const publisher = Effect.fnUntraced(function* (partition: number) {
            let sent = 0
            for (; leaders.moving || sent === 0; sent += 5) {
              yield* publish(it, topic, numbers(sent, 5), partition).pipe(Effect.retry(Schedule.spaced("50 millis")))
              yield* Effect.sleep(batchPause)
            }
            yield* publish(it, topic, ["end"], partition).pipe(Effect.retry(Schedule.spaced("50 millis")))
            return sent
          })
          const publishers = yield* Effect.forEach(numbers(0, partitions), (partition) =>
            Effect.forkScoped(publisher(Number(partition)))
          )
          const admin = yield* KafkaMember.admin(bootstrapServers)
          for (let move = 0; move < moves; move++) {
            yield* Effect.promise(() =>
              moveLeader(admin, KafkaMember.prefix + topic, move % partitions).catch(() => undefined)
            )
            yield* Effect.sleep(moveInterval)
          }
          leaders.moving = false
          const sent = yield* within("the publishers", Effect.forEach(publishers, Fiber.join))
          const firsts = sent.map((): Set<string> => new Set())
          while (firsts.some((first) => !first.has("end"))) {
            const { partition, records } = yield* within(
              "the next slice, up to every partition's end",
              Queue.take(queue)
            )
            for (const record of records) firsts[partition]!.add(textOf(record))
          }
          for (const [partition, first] of firsts.entries()) {
            assert.deepStrictEqual([...first], [...numbers(0, sent[partition]!), "end"], `partition ${partition}`)
          }
          // A rebalance that the last move caused may bring the last slices again, and commit them then.
          yield* within(
            "every offset to be committed",
            Effect.repeat(Effect.retry(it.progress.of(group, topic), Schedule.spaced("100 millis")), {
              until: (all) => all.every(({ lag }) => lag === 0),
              schedule: Schedule.spaced("100 millis")
            })
          )
          yield* within("the consumer's end", Fiber.interrupt(fiber))
          // All committed offsets are at the end: nothing below them is left.
          const marker = randomUUID()
          // The last move may still be in progress.
          yield* publishStubbornly(it, topic, [marker])
          const next = yield* read(it, { topic, group })
          const rest = yield* next.takeUntil(marker)
          assert.deepStrictEqual([...new Set(rest.map((seen) => textOf(seen.record)))], [marker])
        }),
      300_000
    )

    it.effect(
      "a broker that swallows requests delays the partitions that it leads, and no others",
      () =>
        Effect.gen(function* () {
          const { bootstrapServers, brokers } = yield* Cluster
          const topic = `swallowed-${randomUUID()}`
          const admin = yield* KafkaMember.admin(bootstrapServers)
          const replicas = Array.from({ length: partitions }, (_, partition) => [1 + (partition % 3)])
          yield* makeTopic(bootstrapServers, admin, KafkaMember.prefix + topic, replicas)
          // Two sends are expected to time out. A send on a machine that stands still for some seconds must not.
          const it = yield* KafkaMember.makeDirect({ brokers: bootstrapServers.split(","), sendTimeoutMillis: 10_000 })
          const all = numbers(0, partitions).map(Number)
          const swallowed = all.filter((partition) => partition % 3 === 2)
          const others = all.filter((partition) => partition % 3 !== 2)
          const sendTo = (these: ReadonlyArray<number>) =>
            Effect.forEach(these, (partition) => publish(it, topic, ["x"], partition), {
              concurrency: "unbounded",
              discard: true
            })
          // A broker may not know the topic yet, and its refusal is not always an outage.
          yield* within("all partitions", Effect.retry(sendTo(all), Schedule.spaced("100 millis")))
          const { proxy } = brokers.find(({ nodeId }) => nodeId === 3)!
          yield* Effect.acquireRelease(proxy.blackHole(), () => proxy.pass)
          let rounds = 0
          const traffic = Effect.forever(
            Effect.andThen(
              sendTo(others),
              Effect.sync(() => rounds++)
            )
          )
          const tries = Effect.gen(function* () {
            // First on the shared connections, then each partition on connections of its own.
            for (let round = 0; round < 2; round++) {
              const failed = yield* Effect.forEach(swallowed, (partition) => Effect.flip(sendTo([partition])), {
                concurrency: "unbounded"
              })
              assert.deepStrictEqual(
                failed.map(({ _tag }) => _tag),
                swallowed.map(() => "BrokerUnavailable")
              )
            }
            // A process that starts meanwhile describes the topic, too, whichever broker it asks first.
            const late = yield* KafkaMember.makeDirect({ brokers: bootstrapServers.split(",") })
            for (let first = 0; first < 3; first++) {
              yield* within("the topic", late.broker.ensureTopic(topic, partitions))
              // A second attempt, in case the machine stood still during the first one.
              yield* within("an answer", Effect.retry(late.broker.reach!(topic), { times: 1 }))
            }
            yield* proxy.pass
            yield* Effect.forEach(swallowed, (partition) => publishStubbornly(it, topic, ["back"], partition))
          })
          // The first failure of a healthy partition fails the test.
          yield* Effect.raceFirst(tries, traffic)
          assert.isAbove(rounds, 0)
        }),
      300_000
    )

    it.effect(
      "while half of a topic's partitions have no leader, no attempt is counted, the other half and other topics flow, also from a new process, and the rest follows when the leaders are back",
      () =>
        Effect.gen(function* () {
          const { bootstrapServers, brokers } = yield* Cluster
          const prefix = `half-${randomUUID()}-`
          const admin = yield* KafkaMember.admin(bootstrapServers)
          // Even partitions have their only replica on the third node.
          const halves = Array.from({ length: 8 }, (_, partition) => [
            partition % 2 === 0 ? 3 : 1 + ((partition >> 1) % 2)
          ])
          yield* makeTopic(bootstrapServers, admin, prefix + Ledger.topic, halves, [
            { name: "min.insync.replicas", value: "1" }
          ])
          const everywhere = Array.from({ length: 8 }, () => [1, 2, 3])
          yield* makeTopic(bootstrapServers, admin, `${prefix}other`, everywhere)
          const broker = KafkaBroker.layer.pipe(
            Layer.provide(
              Layer.succeed(KafkaBroker.KafkaSettings, {
                brokers: bootstrapServers.split(","),
                prefix,
                createTopics: false,
                replication: 1,
                sendTimeoutMillis: 3_000,
                sessionTimeoutMillis: 10_000,
                clientId: "half"
              })
            )
          )
          yield* Effect.gen(function* () {
            const sql = yield* SqlClient.SqlClient
            yield* Ledger.makeTables
            const ids = Array.from({ length: 40 }, (_, index) => `ledger-${index}`)
            const write = Effect.forEach(ids, (id) => Transaction.run(Ledger.append(id, 2)), { discard: true })
            const start = Effect.map(
              Layer.build(
                TestProcess.dispatcherOver(() => Layer.fresh(broker)).pipe(
                  Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
                  Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 20, backoffCapMillis: 500 })),
                  Layer.fresh
                )
              ),
              (context) => Context.get(context, PartitionPauses)
            )
            // Even lanes are in even partitions.
            const waiting = sql<{ readonly what: string }>`
              SELECT DISTINCT topic || ' ' || lane % 2 AS what FROM outbox_events ORDER BY what`
            const untilHalf = ({ all: pauses }: PartitionPauses["Service"]) =>
              Counters.eventually(
                "a few failed attempts, and all events of partitions with a leader to be sent",
                Effect.all([waiting, pauses]).pipe(
                  Effect.map(
                    ([rows, paused]) =>
                      rows.map(({ what }) => what).join() === `${Ledger.topic} 0` &&
                      paused.some(({ attempt, topic }) => topic === Ledger.topic && attempt >= 3)
                  )
                )
              )
            const third = brokers.find(({ nodeId }) => nodeId === 3)!
            yield* Effect.scoped(
              Effect.gen(function* () {
                const dispatcher = yield* start
                yield* write
                yield* Counters.drained
                yield* third.kill
                yield* write
                yield* Transaction.run(Ledger.append("other", 3, "other"))
                yield* untilHalf(dispatcher)
              })
            )
            // Until its session ends, the other brokers name the dead node as the leader, and kafkajs accepts that.
            yield* Counters.eventually(
              "the other brokers to report that there is no leader",
              Effect.promise(() =>
                admin.fetchTopicMetadata({ topics: [prefix + Ledger.topic] }).then(
                  () => false,
                  (error: unknown) => KafkaErrors.isProtocolError(error, "LEADER_NOT_AVAILABLE")
                )
              )
            )
            yield* write
            yield* untilHalf(yield* start)
            const states = yield* sql<{
              readonly status: string
            }>`SELECT DISTINCT status FROM outbox_status ORDER BY status`
            assert.deepStrictEqual(
              states.map(({ status }) => status),
              ["published", "queued"]
            )
            yield* third.start
            yield* Counters.drained
            const { problems } = Ledger.check(
              yield* Ledger.deliveredKafka(bootstrapServers, prefix + Ledger.topic),
              (yield* Ledger.committed).filter(({ id }) => id !== "other")
            )
            assert.deepStrictEqual(problems, [])
          }).pipe(
            Effect.provide(
              TestProcess.outbox.pipe(
                Layer.provideMerge(TestDatabase.layer),
                Layer.provide(TestProcess.quiet),
                Layer.fresh
              )
            )
          )
        }),
      300_000
    )
  })
})
