import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Schedule, type Scope } from "effect"
import { type Admin, Kafka, logLevel, Partitioners, type Producer, type ProducerConfig } from "kafkajs"
import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as KafkaSource from "../../support/KafkaSource.ts"
import * as LocalKafka from "../../support/LocalKafka.ts"
import { ApiKey, type KafkaProxy } from "../../support/TcpProxy.ts"
import { topicEnds } from "../../support/topicEnds.ts"

/** A start takes 3 s, and of three nodes 8 s. A busy machine gets ten times that. */
const timeoutMillis = 300_000

/** The time limit of one condition on a running cluster: above an election, which notices a death after 2 s, and the move of a leader. */
const patience = "30 seconds"

const source = await Effect.runPromise(KafkaSource.decideLocalKafka)
// These tests kill brokers, so they need a Kafka of their own. In CI its absence is a failure and no skip.
if (source._tag === "Unavailable") {
  const missing = `LocalKafka.test.ts has no Kafka: ${source.missing}`
  if (process.env.CI === "true") throw new KafkaSource.KafkaUnavailable({ missing })
  console.warn(`skipped: ${missing}`)
}

const clientOf = (brokers: string, clientId: string) =>
  new Kafka({ clientId, brokers: brokers.split(","), logLevel: logLevel.NOTHING, requestTimeout: 5_000 })

const use = <C extends Admin | Producer>(client: C): Effect.Effect<C, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      await client.connect()
      return client
    }),
    (client) => Effect.ignore(Effect.tryPromise(() => client.disconnect()))
  )

const makeProducer = (kafka: Kafka, options: ProducerConfig) =>
  use(kafka.producer({ allowAutoTopicCreation: false, createPartitioner: Partitioners.DefaultPartitioner, ...options }))

const createTopic = (kafka: Kafka, replicationFactor: number) =>
  Effect.gen(function* () {
    const admin = yield* use(kafka.admin())
    const topic = `test-${randomUUID()}`
    yield* Effect.promise(() =>
      admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor }], waitForLeaders: true })
    )
    return topic
  }).pipe(Effect.scoped)

/**
 * All records of the only partition up to its current end. The end is asked for first, so that a pause is never taken for it.
 */
const readAll = (kafka: Kafka, topic: string): Effect.Effect<ReadonlyArray<string>> =>
  Effect.gen(function* () {
    const [place] = yield* topicEnds(kafka, topic)
    const end = Number(place!.end)
    const values: Array<string> = []
    if (end === 0) return values
    const consumer = yield* Effect.acquireRelease(
      // A consumer leaves only after the response to its last fetch, by default after 5 s without records.
      Effect.succeed(kafka.consumer({ groupId: `read-${topic}-${randomUUID()}`, maxWaitTimeInMs: 100 })),
      (consumer) => Effect.ignore(Effect.tryPromise(() => consumer.disconnect()))
    )
    yield* Effect.promise(async () => {
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
    })
    yield* Effect.callback<void>((resume) => {
      const run = consumer.run({
        eachMessage: async ({ message }) => {
          values.push(message.value?.toString() ?? "")
          if (Number(message.offset) >= end - 1) resume(Effect.void)
        }
      })
      run.catch((cause) => resume(Effect.die(cause)))
    })
    return values
  }).pipe(Effect.scoped, Effect.timeout(patience), Effect.orDie)

const send = (producer: Producer, topic: string, values: ReadonlyArray<string>) =>
  Effect.tryPromise(() => producer.send({ topic, acks: -1, messages: values.map((value) => ({ value })) }))

type ProxiedBroker = LocalKafka.Broker & { readonly proxy: KafkaProxy }

class OneNode extends Context.Service<OneNode, LocalKafka.LocalKafka<ProxiedBroker>>()("paid-once/test/kafka/OneNode") {
  static readonly layer = Layer.effect(OneNode, LocalKafka.makeProxied({ nodes: 1 }))
}

class ThreeNodes extends Context.Service<ThreeNodes, LocalKafka.LocalKafka>()("paid-once/test/kafka/ThreeNodes") {
  static readonly layer = Layer.effect(ThreeNodes, LocalKafka.make({ nodes: 3 }))
}

/**
 * Sends three messages at once, five times, and each time the first Produce response is lost on the wire. Returns the acknowledged
 * messages and the log.
 */
const loseResponses = (options: ProducerConfig) =>
  Effect.gen(function* () {
    const kafka = yield* OneNode
    const { proxy } = kafka.brokers[0]!
    const direct = clientOf(kafka.directBootstrapServers, "check")
    const topic = yield* createTopic(direct, 1)
    const { acknowledged, refused } = yield* Effect.gen(function* () {
      const producer = yield* makeProducer(clientOf(kafka.bootstrapServers, "lost-ack"), options)
      yield* Effect.orDie(send(producer, topic, ["warm"]))
      const acknowledged = ["warm"]
      const refused: Array<string> = []
      for (let round = 0; round < 5; round++) {
        const dropped = yield* proxy.dropNextResponse({ apiKey: ApiKey.Produce })
        yield* Effect.forEach(
          ["A", "B", "C"],
          (name) => {
            const values = [`${name}${round}.0`, `${name}${round}.1`]
            return send(producer, topic, values).pipe(
              Effect.match({
                onSuccess: () => void acknowledged.push(...values),
                onFailure: () => void refused.push(...values)
              })
            )
          },
          { concurrency: "unbounded", discard: true }
        )
        yield* Effect.timeout(dropped, patience)
      }
      return { acknowledged, refused }
    }).pipe(Effect.scoped)
    const log = yield* readAll(direct, topic)
    return { acknowledged, refused, log, lost: acknowledged.filter((value) => !log.includes(value)) }
  })

/** The delay of kafkajs' own retry: many times the duration of an acknowledged send. */
const ownRetryMillis = 2_000

/** Sends A, whose request is cut off before the broker has received it. */
const loseRequest = (options: ProducerConfig) =>
  Effect.gen(function* () {
    const kafka = yield* OneNode
    const { proxy } = kafka.brokers[0]!
    const direct = clientOf(kafka.directBootstrapServers, "check")
    const topic = yield* createTopic(direct, 1)
    const producer = yield* makeProducer(clientOf(kafka.bootstrapServers, "lost-request"), options)
    yield* Effect.orDie(send(producer, topic, ["warm"]))
    const before = yield* proxy.counters
    // In the middle of the request's header: a broker executes complete requests only.
    const cut = yield* proxy.cutAfter({ bytes: 10, direction: "requests" })
    const first = yield* Effect.forkChild(Effect.exit(send(producer, topic, ["A"])))
    yield* Effect.timeout(cut, patience)
    return { before, direct, first, producer, proxy, topic }
  })

describe.skipIf(source._tag === "Unavailable")("LocalKafka", () => {
  layer(OneNode.layer, { excludeTestServices: true, timeout: timeoutMillis })("one node, behind a proxy", (it) => {
    it.effect(
      "stores and returns the records of kafkajs",
      () =>
        Effect.gen(function* () {
          const kafka = yield* OneNode
          const client = clientOf(kafka.bootstrapServers, "roundtrip")
          const topic = yield* createTopic(client, 1)
          const producer = yield* makeProducer(client, { idempotent: false, retry: { retries: 0 } })
          const before = yield* kafka.brokers[0]!.proxy.counters
          yield* send(producer, topic, ["one", "two"])
          assert.deepStrictEqual(yield* readAll(client, topic), ["one", "two"])
          // The broker has told the client to come through the proxy.
          const after = yield* kafka.brokers[0]!.proxy.counters
          assert.strictEqual(
            (after.requestFrames[ApiKey.Produce] ?? 0) - (before.requestFrames[ApiKey.Produce] ?? 0),
            1
          )
          assert.isAbove(after.responseFrames[ApiKey.Fetch] ?? 0, 0)
        }),
      timeoutMillis
    )

    it.effect(
      "kafkajs' idempotent producer loses acknowledged messages after a lost response",
      () =>
        Effect.gen(function* () {
          const { acknowledged, log, lost } = yield* loseResponses({ idempotent: true })
          console.info(
            `idempotent: acknowledged ${acknowledged.length}, in the log ${log.length}, lost ${lost.join(" ")}`
          )
          assert.isAbove(lost.length, 0)
        }),
      timeoutMillis
    )

    it.effect(
      "a producer that is neither idempotent nor self-retrying loses no acknowledged message, and fails the others",
      () =>
        Effect.gen(function* () {
          const { acknowledged, log, lost, refused } = yield* loseResponses({
            idempotent: false,
            retry: { retries: 0 }
          })
          console.info(
            `plain: acknowledged ${acknowledged.length}, refused ${refused.length}, in the log ${log.length}`
          )
          assert.deepStrictEqual(lost, [])
          // Each of the five lost responses failed at least one send, and the log has its message: an unknown outcome.
          assert.isAtLeast(refused.length, 10)
          assert.isAbove(refused.filter((value) => log.includes(value)).length, 0)
          assert.strictEqual(new Set(log).size, log.length)
        }),
      timeoutMillis
    )

    it.effect(
      "kafkajs' own retry stores two batches of a partition in the wrong order, and acknowledges both",
      () =>
        Effect.gen(function* () {
          const { before, direct, first, producer, proxy, topic } = yield* loseRequest({
            idempotent: false,
            retry: { retries: 1, initialRetryTime: ownRetryMillis, factor: 0 }
          })
          // kafkajs reconnects to find the leader, and then waits before its retry. No caller knows that A failed.
          yield* proxy
            .until(
              ({ responseFrames }) =>
                (responseFrames[ApiKey.Metadata] ?? 0) > (before.responseFrames[ApiKey.Metadata] ?? 0)
            )
            .pipe(Effect.timeout(patience))
          yield* send(producer, topic, ["B"])
          assert.isTrue(Exit.isSuccess(yield* Fiber.join(first).pipe(Effect.timeout(patience))))
          assert.deepStrictEqual(yield* readAll(direct, topic), ["warm", "B", "A"])
        }),
      timeoutMillis
    )

    it.effect(
      "a producer that does not retry by itself reports a failure at once, and the caller repeats that batch first",
      () =>
        Effect.gen(function* () {
          const { direct, first, producer, topic } = yield* loseRequest({ idempotent: false, retry: { retries: 0 } })
          assert.isTrue(Exit.isFailure(yield* Fiber.join(first).pipe(Effect.timeout(patience))))
          yield* send(producer, topic, ["A"])
          yield* send(producer, topic, ["B"])
          assert.deepStrictEqual(yield* readAll(direct, topic), ["warm", "A", "B"])
        }),
      timeoutMillis
    )

    it.effect(
      "keeps acknowledged records through kill -9 and a start on the same data",
      () =>
        Effect.gen(function* () {
          const kafka = yield* OneNode
          const [broker] = kafka.brokers
          const client = clientOf(kafka.bootstrapServers, "kill")
          const topic = yield* createTopic(client, 1)
          yield* Effect.scoped(
            Effect.gen(function* () {
              const producer = yield* makeProducer(client, { idempotent: false, retry: { retries: 0 } })
              yield* send(producer, topic, ["before"])
              yield* broker!.kill
              const refused = yield* Effect.flip(send(producer, topic, ["while it is down"]))
              assert.isDefined(refused)
            })
          )
          yield* broker!.start
          const producer = yield* makeProducer(client, { idempotent: false, retry: { retries: 0 } })
          yield* send(producer, topic, ["after"])
          assert.deepStrictEqual(yield* readAll(client, topic), ["before", "after"])
        }),
      timeoutMillis
    )

    it.effect(
      "a frozen node keeps its clients waiting, and goes on when thawed",
      () =>
        Effect.gen(function* () {
          const kafka = yield* OneNode
          const [broker] = kafka.brokers
          const client = clientOf(kafka.bootstrapServers, "freeze")
          const topic = yield* createTopic(client, 1)
          const producer = yield* makeProducer(client, { idempotent: false, retry: { retries: 0 } })
          yield* send(producer, topic, ["before"])
          yield* broker!.freeze
          const { requestFrames, responseFrames } = yield* broker!.proxy.counters
          const whileFrozen = yield* Effect.forkChild(send(producer, topic, ["frozen"]))
          yield* broker!.proxy
            .until((counters) => (counters.requestFrames[ApiKey.Produce] ?? 0) > (requestFrames[ApiKey.Produce] ?? 0))
            .pipe(Effect.timeout(patience))
          assert.strictEqual(
            (yield* broker!.proxy.counters).responseFrames[ApiKey.Produce],
            responseFrames[ApiKey.Produce]
          )
          yield* broker!.thaw
          yield* Fiber.join(whileFrozen).pipe(Effect.timeout(patience))
          assert.deepStrictEqual(yield* readAll(client, topic), ["before", "frozen"])
        }),
      timeoutMillis
    )

    it.effect(
      "a port that is taken is an error that names it",
      () =>
        Effect.gen(function* () {
          const { port } = (yield* OneNode).brokers[0]!.direct
          const error = yield* Effect.flip(LocalKafka.make({ nodes: 1, port }))
          assert.strictEqual(error.message, `port ${port} of 127.0.0.1 is in use`)
        }),
      timeoutMillis
    )
  })

  // Outside the block above, so that its node is gone before three more start.
  layer(ThreeNodes.layer, { excludeTestServices: true, timeout: timeoutMillis })("three nodes", (it) => {
    for (const retries of [5, 0]) {
      it.effect(
        retries > 0
          ? "after a leader's move kafkajs' own retry acknowledges a send of which one partition has nothing"
          : "after a leader's move a producer that does not retry by itself refuses the same send",
        () =>
          Effect.gen(function* () {
            const client = clientOf((yield* ThreeNodes).bootstrapServers, "partial")
            const topic = `test-${randomUUID()}`
            const admin = yield* use(client.admin())
            yield* Effect.promise(() =>
              admin.createTopics({
                topics: [
                  {
                    topic,
                    replicaAssignment: [
                      { partition: 0, replicas: [1] },
                      { partition: 1, replicas: [2] }
                    ]
                  }
                ],
                waitForLeaders: true
              })
            )
            const producer = yield* makeProducer(client, {
              idempotent: false,
              retry: { retries, initialRetryTime: 500, factor: 0 }
            })
            const sendToBoth = (value: string) =>
              Effect.tryPromise(() =>
                producer.send({ topic, acks: -1, messages: [0, 1].map((partition) => ({ partition, value })) })
              )
            yield* sendToBoth("before")
            yield* Effect.promise(() =>
              admin.alterPartitionReassignments({
                topics: [{ topic, partitionAssignment: [{ partition: 1, replicas: [1] }] }]
              })
            )
            yield* Effect.promise(() => admin.fetchTopicMetadata({ topics: [topic] })).pipe(
              Effect.map(({ topics }) => topics[0]!.partitions.find(({ partitionId }) => partitionId === 1)!.leader),
              Effect.repeat({ until: (leader) => leader === 1, schedule: Schedule.spaced("100 millis") }),
              Effect.timeout(patience)
            )
            // The producer sends to the old leader, which refuses; the other partition's message is stored. Then one node leads both, and
            // kafkajs does not ask it again, because it has already responded.
            const sent = yield* Effect.exit(sendToBoth("after"))
            assert.strictEqual(Exit.isSuccess(sent), retries > 0)
            const ends = yield* topicEnds(client, topic)
            assert.deepStrictEqual(
              ends.map(({ end }) => end),
              [2n, 1n]
            )
          }),
        timeoutMillis
      )
    }

    it.effect(
      "when a partition's leader is killed, a new one serves what was acknowledged",
      () =>
        Effect.gen(function* () {
          const kafka = yield* ThreeNodes
          const client = clientOf(kafka.bootstrapServers, "leader")
          const topic = yield* createTopic(client, 3)
          const admin = yield* use(client.admin())
          const leader = Effect.tryPromise(async () => {
            const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
            return topics[0]!.partitions[0]!.leader
          })
          yield* Effect.scoped(
            Effect.gen(function* () {
              const producer = yield* makeProducer(client, { idempotent: false, retry: { retries: 0 } })
              yield* send(producer, topic, ["before"])
            })
          )
          const first = yield* leader
          const broker = kafka.brokers.find(({ nodeId }) => nodeId === first)!
          yield* broker.kill
          const second = yield* leader.pipe(
            Effect.filterOrFail(
              (leader) => leader !== first && leader !== -1,
              () => "no new leader yet"
            ),
            Effect.retry(Schedule.spaced("100 millis")),
            Effect.timeout(patience)
          )
          assert.notStrictEqual(second, first)
          const producer = yield* makeProducer(client, { idempotent: false, retry: { retries: 0 } })
          yield* send(producer, topic, ["after"]).pipe(
            Effect.retry(Schedule.spaced("100 millis")),
            Effect.timeout(patience)
          )
          const log = yield* readAll(client, topic)
          assert.strictEqual(log[0], "before")
          assert.include(log, "after")
          yield* broker.start
          assert.deepStrictEqual(yield* readAll(client, topic), log)
        }),
      timeoutMillis
    )
  })
})

/** Whether a process lives. A zombie does not count: in a container, often no parent reaps it. */
const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))
  } catch {
    return false
  }
}

describe.skipIf(process.platform !== "linux")("makeWatchdog", () => {
  it.live(
    "ends the processes and removes the data of an owner that was killed",
    () =>
      Effect.gen(function* () {
        const directory = yield* Effect.acquireRelease(
          Effect.sync(() => mkdtempSync(path.join(tmpdir(), "paid-once-watchdog-"))),
          (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
        )
        const support = (name: string) => JSON.stringify(path.join(import.meta.dirname, "../../support", name))
        const program = `
        import { Effect } from "effect"
        import { spawn } from "node:child_process"
        import { makeWatchdog } from ${support("LocalKafka.ts")}
        await Effect.runPromise(Effect.scoped(Effect.gen(function*() {
          const setLiving = yield* makeWatchdog(${JSON.stringify(directory)})
          const child = spawn("sleep", ["300"], { detached: true, stdio: "ignore" })
          setLiving([child.pid])
          console.log(child.pid)
          yield* Effect.never
        })))
      `
        const owner = yield* Effect.acquireRelease(
          Effect.sync(() =>
            spawn(process.execPath, ["--input-type=module", "-e", program], {
              cwd: path.join(import.meta.dirname, "../../.."),
              stdio: ["ignore", "pipe", "inherit"]
            })
          ),
          (owner) => Effect.sync(() => owner.kill("SIGKILL"))
        )
        const pid = yield* Effect.callback<number>((resume) => {
          owner.stdout.once("data", (chunk: Buffer) => resume(Effect.succeed(Number(chunk.toString()))))
        }).pipe(Effect.timeout(patience))
        assert.isTrue(isAlive(pid))
        owner.kill("SIGKILL")
        yield* Effect.sync(() => isAlive(pid) || existsSync(directory)).pipe(
          Effect.repeat({ while: (left) => left, schedule: Schedule.spaced("20 millis") }),
          Effect.timeout(patience)
        )
        assert.isFalse(isAlive(pid))
      }),
    timeoutMillis
  )
})
