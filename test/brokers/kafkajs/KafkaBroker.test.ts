import { assert, describe, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Queue, References, Stream, SubscriptionRef } from "effect"
import { CompressionTypes, Partitioners } from "kafkajs"
import { randomUUID } from "node:crypto"
import { inject } from "vitest"
import type { Slice } from "../../../src/brokers/Broker.ts"
import { brokerContract } from "../../contracts/Broker.ts"
import { progressContract } from "../../contracts/GroupProgress.ts"
import { topicReaderContract } from "../../contracts/TopicReader.ts"
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
import * as KafkaSource from "../../support/KafkaSource.ts"
import * as LocalKafka from "../../support/LocalKafka.ts"
import { ApiKey, freePorts } from "../../support/TcpProxy.ts"
import * as KafkaMember from "./KafkaMember.ts"

const bootstrapServers = inject("kafkaBrokers")
if (bootstrapServers === null) {
  const missing = `none of KafkaBroker.test.ts ran (the broker's contract, and what happens on the wire): ${inject("kafkaMissing")}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

/** The limit of a test whose waits have no limit of their own. */
const testTimeoutMillis = 300_000

/** The tests cause failures on purpose, and their log lines are noise. */
const quiet = Layer.succeed(References.MinimumLogLevel, "Error")

/** The Kafka of these tests. */
class Servers extends Context.Service<Servers, { readonly bootstrapServers: string }>()("test/kafka/Servers") {}

const member = (settings: KafkaMember.Settings = {}) =>
  Effect.flatMap(Servers, ({ bootstrapServers }) => KafkaMember.make(bootstrapServers, settings))

const values = (seen: ReadonlyArray<{ readonly record: Slice["records"][number] }>) =>
  seen.map((one) => textOf(one.record))

/** All records of partition 0, read without a proxy by a group of its own. */
const logOf = Effect.fnUntraced(function* (topic: string) {
  const witness = yield* member()
  const marker = randomUUID()
  yield* publishStubbornly(witness, topic, [marker])
  const reader = yield* read(witness, { topic, group: `witness-${marker}` })
  // A reader whose group rebalances gets some records again.
  const seen = yield* reader.takeUntil(marker)
  return values([...new Map(seen.map((one) => [one.record.offset, one])).values()]).slice(0, -1)
})

describe.skipIf(bootstrapServers === null)("KafkaBroker", () => {
  // Not reached without a Kafka, but vitest collects the block.
  const servers = bootstrapServers ?? ""
  if (bootstrapServers !== null) {
    brokerContract("KafkaBroker", KafkaMember.harness(servers))
    progressContract("KafkaBroker", KafkaMember.harness(servers))
    topicReaderContract("KafkaBroker", KafkaMember.harness(servers))
  }

  layer(Layer.merge(Layer.succeed(Servers, { bootstrapServers: servers }), quiet), { excludeTestServices: true })(
    "on the wire",
    (it) => {
      it.effect(
        "a lost response is an unknown outcome: the batch is in the log once, and publishing it again duplicates it as a whole",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { topic } = yield* newTopic(it)
            yield* publish(it, topic, ["warm"])
            const dropped = yield* it.proxy.dropNextResponse({ apiKey: ApiKey.Produce })
            const before = (yield* it.proxy.counters).requestFrames[ApiKey.Produce]!
            const error = yield* Effect.flip(publish(it, topic, numbers(0, 3)))
            assert.strictEqual(error._tag, "BrokerUnavailable")
            assert.isFalse(yield* SubscriptionRef.get(it.broker.available))
            yield* within("the drop", dropped)
            assert.strictEqual(
              (yield* it.proxy.counters).requestFrames[ApiKey.Produce]! - before,
              1,
              "sent once, whatever happens"
            )
            assert.deepStrictEqual(yield* logOf(topic), ["warm", ...numbers(0, 3)])
            yield* publish(it, topic, numbers(0, 3))
            assert.isTrue(yield* SubscriptionRef.get(it.broker.available))
            const marked = yield* logOf(topic)
            assert.deepStrictEqual(
              marked.filter((value) => value.length < 5),
              ["warm", ...numbers(0, 3), ...numbers(0, 3)]
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "a rehearsal connects and asks for the topic, and sends nothing; the first send needs no further question",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { topic } = yield* newTopic(it)
            const frames = Effect.map(it.proxy.counters, ({ requestFrames }) => ({
              produce: requestFrames[ApiKey.Produce] ?? 0,
              metadata: requestFrames[ApiKey.Metadata] ?? 0
            }))
            const record = { key: "one", value: Buffer.from("{}"), headers: {} }
            const before = yield* frames
            yield* it.broker.rehearse!({ topic, partition: 0, records: [record] })
            const rehearsed = yield* frames
            assert.strictEqual(rehearsed.produce, before.produce)
            assert.isAbove(rehearsed.metadata, before.metadata)
            const { baseOffset } = yield* publish(it, topic, ["first"])
            assert.strictEqual(baseOffset, 0n)
            assert.deepStrictEqual(yield* frames, { produce: rehearsed.produce + 1, metadata: rehearsed.metadata })
          }),
        testTimeoutMillis
      )

      it.effect(
        "a rehearsal that can't connect fails, and the first send afterwards opens a connection of its own",
        () =>
          Effect.gen(function* () {
            const it = yield* member({ sendTimeoutMillis: KafkaMember.impatientMillis })
            const { topic } = yield* newTopic(it)
            yield* it.proxy.blackHole()
            const record = { key: "one", value: Buffer.from("{}"), headers: {} }
            const error = yield* Effect.flip(it.broker.rehearse!({ topic, partition: 0, records: [record] }))
            assert.strictEqual(error._tag, "BrokerUnavailable")
            yield* it.proxy.pass
            yield* publish(it, topic, ["first"])
          }),
        testTimeoutMillis
      )

      it.effect(
        "a connection without responses fails within the send's timeout, and the next send opens a new one",
        () =>
          Effect.gen(function* () {
            const it = yield* member({ sendTimeoutMillis: KafkaMember.impatientMillis })
            const { group, topic } = yield* newTopic(it)
            const reader = yield* read(it, { topic, group })
            yield* publishStubbornly(it, topic, ["before"])
            yield* reader.take(1)
            const { accepted } = yield* it.proxy.counters
            yield* it.proxy.blackHole()
            const started = Date.now()
            const error = yield* Effect.flip(publish(it, topic, ["swallowed"]))
            assert.strictEqual(error._tag, "BrokerUnavailable")
            // By the send's own timeout, and not by the client's default of 30 s.
            assert.isBelow(Date.now() - started, 10 * KafkaMember.impatientMillis)
            // The consumer notices, too: it replaces its connections while the proxy still swallows everything.
            yield* within(
              "fresh connections",
              it.proxy.until((counters) => counters.accepted >= accepted + 2)
            )
            yield* it.proxy.pass
            yield* within("the next send", publishStubbornly(it, topic, ["after"]))
            const seen = values(yield* reader.takeUntil("after"))
            assert.deepStrictEqual(
              seen.filter((value) => value !== "before"),
              ["after"],
              "what was given up never went out"
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "late responses and resets during many sends: no acknowledged batch is lost, and none is sent twice",
        () =>
          Effect.gen(function* () {
            const it = yield* member({ sendTimeoutMillis: KafkaMember.impatientMillis })
            const { topic } = yield* newTopic(it)
            yield* publishStubbornly(it, topic, ["warm"])
            const acknowledged: Array<string> = []
            const unknown: Array<string> = []
            const sender = (name: string) =>
              Effect.forEach(
                numbers(0, 10),
                (round) => {
                  const batch = [`${name}.${round}.a`, `${name}.${round}.b`]
                  return publish(it, topic, batch).pipe(
                    Effect.match({
                      onSuccess: () => void acknowledged.push(...batch),
                      onFailure: () => void unknown.push(...batch)
                    })
                  )
                },
                { discard: true }
              )
            // A response after the timeout is an unknown outcome.
            yield* it.proxy.delayResponse({ apiKey: ApiKey.Produce, millis: 2 * KafkaMember.impatientMillis })
            const late = yield* Effect.flip(publish(it, topic, ["late.a", "late.b"]))
            assert.strictEqual(late._tag, "BrokerUnavailable")
            const senders = yield* Effect.forkChild(
              Effect.forEach(numbers(0, 6), sender, { concurrency: "unbounded", discard: true })
            )
            for (let round = 0; round < 10; round++) {
              const { requestFrames } = yield* it.proxy.counters
              yield* Effect.raceFirst(
                it.proxy.until(
                  (counters) => (counters.requestFrames[ApiKey.Produce] ?? 0) > (requestFrames[ApiKey.Produce] ?? 0)
                ),
                Fiber.await(senders)
              )
              yield* it.proxy.reset
            }
            yield* within("the senders", Fiber.join(senders))
            yield* it.proxy.pass
            const log = (yield* logOf(topic)).filter((value) => value !== "warm")
            assert.deepStrictEqual(
              acknowledged.filter((value) => !log.includes(value)),
              []
            )
            assert.strictEqual(new Set(log).size, log.length)
            // Whole batches, acknowledged or not.
            assert.deepStrictEqual(
              log.filter((value, index) => value.endsWith(".a") && log[index + 1] !== value.replace(/a$/, "b")),
              []
            )
            assert.isAbove(unknown.length, 0)
            assert.strictEqual(acknowledged.length + unknown.length, 120)
          }),
        testTimeoutMillis
      )

      it.effect(
        "when one of several concurrent sends loses its response, no acknowledged batch is lost and none is sent twice",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { topic } = yield* newTopic(it)
            yield* publish(it, topic, ["warm"])
            const acknowledged: Array<string> = []
            const unknown: Array<string> = []
            for (let round = 0; round < 5; round++) {
              const dropped = yield* it.proxy.dropNextResponse({ apiKey: ApiKey.Produce })
              yield* Effect.forEach(
                numbers(0, 8),
                (name) => {
                  const batch = [`${round}.${name}.a`, `${round}.${name}.b`]
                  return publish(it, topic, batch).pipe(
                    Effect.match({
                      onSuccess: () => void acknowledged.push(...batch),
                      onFailure: (error) => {
                        assert.strictEqual(error._tag, "BrokerUnavailable")
                        unknown.push(...batch)
                      }
                    })
                  )
                },
                { concurrency: "unbounded", discard: true }
              )
              yield* within("the drop", dropped)
            }
            const log = yield* logOf(topic)
            assert.deepStrictEqual(
              acknowledged.filter((value) => !log.includes(value)),
              []
            )
            assert.strictEqual(new Set(log).size, log.length)
            assert.isAtLeast(unknown.length, 10)
            assert.strictEqual(acknowledged.length + unknown.length, 80)
          }),
        testTimeoutMillis
      )

      it.effect(
        "a slice that takes longer than the session timeout keeps its partition",
        () =>
          Effect.gen(function* () {
            const [one, two] = [yield* member(), yield* member()]
            const { group, topic } = yield* newTopic(one)
            const handed: Array<string> = []
            const done = yield* Deferred.make<void>()
            yield* publish(one, topic, ["slow"])
            const handle = (slice: Slice) =>
              Effect.sync(() => handed.push(textOf(slice.records[0]))).pipe(
                Effect.andThen(Effect.sleep(1.5 * KafkaMember.sessionTimeoutMillis)),
                Effect.andThen(slice.commit),
                Effect.andThen(Deferred.succeed(done, undefined))
              )
            const fiber = yield* consume(one, { topic, group }, handle)
            yield* within("the slice", Deferred.await(done))
            assert.deepStrictEqual(handed, ["slow"])
            yield* within("the end", Fiber.interrupt(fiber))
            const next = yield* read(two, { topic, group })
            yield* publish(two, topic, ["next"])
            assert.deepStrictEqual(values(yield* next.take(1)), ["next"])
          }),
        testTimeoutMillis
      )

      it.effect(
        "a foreign record without key, value or headers is delivered, and of a repeated header the last value",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { group, topic } = yield* newTopic(it)
            const { bootstrapServers } = yield* Servers
            const producer = yield* KafkaMember.foreignProducer(bootstrapServers)
            yield* Effect.promise(() =>
              producer.send({
                topic: KafkaMember.prefix + topic,
                messages: [
                  { key: null, value: null },
                  { key: "", value: "", headers: { one: "1", many: ["1", "2"], bytes: Buffer.from("ü") } }
                ]
              })
            )
            const reader = yield* read(it, { topic, group })
            assert.deepStrictEqual(
              (yield* reader.take(2)).map(({ record: { headers, key, value } }) => ({
                key,
                value: value && Uint8Array.from(value),
                headers
              })),
              [
                { key: null, value: null, headers: {} },
                { key: "", value: new Uint8Array(), headers: { one: "1", many: "2", bytes: "ü" } }
              ]
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "a new topic keeps no foreign batch compressed, and Kafka refuses one that unpacks above the topic's limit",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { group, topic } = yield* newTopic(it)
            const { bootstrapServers } = yield* Servers
            const producer = yield* KafkaMember.foreignProducer(bootstrapServers)
            const send = (value: Buffer) =>
              producer.send({
                topic: KafkaMember.prefix + topic,
                compression: CompressionTypes.GZIP,
                messages: [{ key: "a", value }]
              })
            yield* Effect.promise(() => send(Buffer.from("packed")))
            const refused = yield* Effect.promise(() =>
              send(Buffer.alloc(20_000_000)).then(
                () => "taken",
                (error: Error) => error.message
              )
            )
            assert.include(refused, "larger than the max message size")
            yield* publish(it, topic, ["plain"])
            const reader = yield* read(it, { topic, group })
            assert.deepStrictEqual(values(yield* reader.take(2)), ["packed", "plain"])
          }),
        testTimeoutMillis
      )

      it.effect(
        "a foreign transaction that stays open keeps nothing back",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { group, topic } = yield* newTopic(it)
            const { bootstrapServers } = yield* Servers
            const producer = yield* Effect.acquireRelease(
              Effect.promise(async () => {
                const producer = KafkaMember.kafkajs(bootstrapServers).producer({
                  transactionalId: randomUUID(),
                  idempotent: true,
                  maxInFlightRequests: 1,
                  createPartitioner: Partitioners.DefaultPartitioner
                })
                await producer.connect()
                return producer
              }),
              (producer) => Effect.promise(() => producer.disconnect())
            )
            const transaction = yield* Effect.promise(() => producer.transaction())
            yield* Effect.promise(() =>
              transaction.send({ topic: KafkaMember.prefix + topic, messages: [{ partition: 0, value: "open" }] })
            )
            yield* publish(it, topic, ["after it"])
            const reader = yield* read(it, { topic, group })
            assert.deepStrictEqual(values(yield* reader.take(2)), ["open", "after it"])
            yield* Effect.promise(() => transaction.abort())
          }),
        testTimeoutMillis
      )

      it.effect(
        "the prefix is put before the names of topics and groups on the wire, and only there",
        () =>
          Effect.gen(function* () {
            const prefix = `p${randomUUID()}.`
            const it = yield* member({ prefix })
            const { group, info, topic } = yield* newTopic(it)
            const seen = yield* Queue.unbounded<Slice>()
            yield* consume(it, { topic, group }, (slice) => Effect.andThen(slice.commit, Queue.offer(seen, slice)))
            yield* publish(it, topic, ["0"])
            const slice = yield* within("the slice", Queue.take(seen))
            assert.deepStrictEqual([info.topic, slice.topic], [topic, topic])
            const { bootstrapServers } = yield* Servers
            const admin = yield* KafkaMember.admin(bootstrapServers)
            const topics = yield* Effect.promise(() => admin.listTopics())
            assert.deepStrictEqual(
              topics.filter((name) => name.endsWith(topic)),
              [prefix + topic]
            )
            const { groups } = yield* Effect.promise(() => admin.listGroups())
            assert.deepStrictEqual(
              groups.map(({ groupId }) => groupId).filter((name) => name.endsWith(group)),
              [prefix + group]
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "a missing topic is not created when KAFKA_CREATE_TOPICS is off, and a missing partition is an error",
        () =>
          Effect.gen(function* () {
            const it = yield* member({ createTopics: false })
            const error = yield* Effect.flip(it.broker.ensureTopic(`missing-${randomUUID()}`, 1))
            assert.strictEqual(error._tag, "TopicUnavailable")
            assert.match(error.message, /does not exist, and KAFKA_CREATE_TOPICS is off/)
            const other = yield* member()
            const { topic } = yield* newTopic(other)
            const noPartition = yield* Effect.flip(publish(other, topic, ["0"], 7))
            assert.strictEqual(noPartition._tag, "TopicUnavailable")
            assert.match(noPartition.message, /no partition 7/)
            const tooMany = yield* Effect.flip(
              (yield* member({ replication: 9 })).broker.ensureTopic(`wide-${randomUUID()}`, 1)
            )
            assert.strictEqual(tooMany._tag, "TopicUnavailable")
            assert.match(tooMany.message, /INVALID_REPLICATION_FACTOR/)
            assert.isTrue(
              yield* SubscriptionRef.get(other.broker.available),
              "all of these are answers of a broker that is there"
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "a topic that many members create at once is created once",
        () =>
          Effect.gen(function* () {
            const topic = `race-${randomUUID()}`
            const infos = yield* Effect.forEach(
              numbers(0, 4),
              () => Effect.flatMap(member(), ({ broker }) => broker.ensureTopic(topic, 8)),
              {
                concurrency: "unbounded"
              }
            )
            assert.deepStrictEqual(
              infos.map(({ partitions }) => partitions),
              [8, 8, 8, 8]
            )
            yield* Effect.forEach(numbers(0, 8), (partition) =>
              Effect.flatMap(member(), (it) => publish(it, topic, ["0"], Number(partition)))
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "more records than a reader buffers are delivered in order and completely, however slow the handler is",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { group, topic } = yield* newTopic(it)
            const filler = "x".repeat(10_000)
            for (let batch = 0; batch < 10; batch++) {
              yield* publish(
                it,
                topic,
                numbers(batch * 50, 50).map((value) => `${value} ${filler}`)
              )
            }
            const reader = yield* read(it, { topic, group, sliceSize: 20 }, { commits: () => true })
            const seen = yield* reader.take(500)
            assert.deepStrictEqual(
              values(seen).map((value) => value.split(" ")[0]),
              numbers(0, 500)
            )
          }),
        testTimeoutMillis
      )

      it.effect(
        "a group whose next record was deleted continues with the first record that is left",
        () =>
          Effect.gen(function* () {
            const it = yield* member()
            const { group, topic } = yield* newTopic(it)
            yield* publish(it, topic, numbers(0, 10))
            const first = yield* read(
              it,
              { topic, group, sliceSize: 1 },
              { commits: (slice) => slice.records[0].offset === 0n }
            )
            yield* first.take(10)
            yield* first.stop
            const { bootstrapServers } = yield* Servers
            const admin = yield* KafkaMember.admin(bootstrapServers)
            const wireTopic = KafkaMember.prefix + topic
            yield* Effect.promise(async () => {
              // kafkajs deletes records only of a topic whose metadata it has.
              await admin.fetchTopicMetadata({ topics: [wireTopic] })
              await admin.deleteTopicRecords({ topic: wireTopic, partitions: [{ partition: 0, offset: "5" }] })
            })
            const next = yield* read(it, { topic, group })
            assert.deepStrictEqual(values(yield* next.take(5)), numbers(5, 5))
          }),
        testTimeoutMillis
      )

      it.effect(
        "a broker that is down does not hide the other bootstrap servers",
        () =>
          Effect.gen(function* () {
            const { bootstrapServers } = yield* Servers
            const [closed] = yield* freePorts(1)
            const it = yield* KafkaMember.makeDirect({
              brokers: [`127.0.0.1:${closed}`, bootstrapServers.split(",")[0]!]
            })
            const { group, topic } = yield* newTopic(it)
            for (const value of numbers(0, 3)) yield* publish(it, topic, [value])
            const reader = yield* read(it, { topic, group })
            assert.deepStrictEqual(values(yield* reader.take(3)), numbers(0, 3))
          }),
        testTimeoutMillis
      )
    }
  )
})

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `KafkaBroker.test.ts did not restart a broker: ${local.missing}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

describe.skipIf(bootstrapServers === null || local._tag === "Unavailable")(
  "KafkaBroker over a broker of its own",
  () => {
    class Own extends Context.Service<Own, LocalKafka.LocalKafka>()("test/kafka/Own") {
      static readonly layer = Layer.effect(Own, LocalKafka.make({ nodes: 1 }))
    }
    layer(Layer.merge(Own.layer, quiet), { excludeTestServices: true, timeout: testTimeoutMillis })((it) => {
      it.effect(
        "a consumer and a producer survive the broker's restart",
        () =>
          Effect.gen(function* () {
            const {
              bootstrapServers,
              brokers: [broker]
            } = yield* Own
            const it = yield* KafkaMember.make(bootstrapServers)
            const { group, topic } = yield* newTopic(it)
            const reader = yield* read(it, { topic, group })
            yield* publish(it, topic, numbers(0, 5))
            yield* reader.take(5)
            yield* broker!.kill
            const error = yield* Effect.flip(publish(it, topic, ["while it is down"]))
            assert.strictEqual(error._tag, "BrokerUnavailable")
            assert.isFalse(yield* SubscriptionRef.get(it.broker.available))
            yield* broker!.start
            for (const value of numbers(5, 5)) yield* publishStubbornly(it, topic, [value])
            const seen = values(yield* reader.takeUntil("9"))
            assert.deepStrictEqual(
              [...new Set(seen)].filter((value) => Number(value) >= 5),
              numbers(5, 5)
            )
            // A request that was in flight when the broker died may time out only now, and report it unavailable once more.
            yield* SubscriptionRef.changes(it.broker.available).pipe(
              Stream.filter((available) => available),
              Stream.runHead
            )
          }),
        testTimeoutMillis
      )
    })
  }
)
