/** Outages of a real Kafka under a running service: orders are taken, no attempt is counted, and the queue drains by itself. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, Schema } from "effect"
import kafkajs from "kafkajs"
import { randomUUID } from "node:crypto"
import * as ServiceProcess from "../../../src/cli/ServiceProcess.ts"
import { Broker } from "../../../src/brokers/Broker.ts"
import * as KafkaBroker from "../../../src/brokers/kafkajs/KafkaBroker.ts"
import { PartitionPauses, PauseSettings } from "../../../src/guards/PartitionPauses.ts"
import { laneCount } from "../../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../../src/outbox/LaneWorkers.ts"
import { ReachabilitySettings } from "../../../src/guards/BrokerReachability.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import * as Counters from "../../support/Counters.ts"
import * as KafkaSource from "../../support/KafkaSource.ts"
import * as Ledger from "../../support/Ledger.ts"
import * as LocalKafka from "../../support/LocalKafka.ts"
import { readTopic } from "../../support/readTopic.ts"
import type { KafkaProxy } from "../../support/TcpProxy.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import * as KafkaMember from "./KafkaMember.ts"

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `none of kafka/Outage.test.ts ran (outages of a real Kafka): ${local.missing}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const timeoutMillis = 120_000

class Node extends Context.Service<Node, LocalKafka.LocalKafka<LocalKafka.Broker & { readonly proxy: KafkaProxy }>>()(
  "test/kafka/OutageNode"
) {
  static readonly layer = Layer.effect(
    Node,
    LocalKafka.makeProxied({
      nodes: 1,
      // Access is denied only where a rule denies it.
      properties: {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true"
      }
    })
  )
}

/** Every event is queued or published: an outage counts no attempt, so no event is held. */
const assertNothingBurned = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const rows = yield* sql<{ readonly status: string }>`SELECT DISTINCT status FROM outbox_status`
  assert.deepStrictEqual(
    rows.map(({ status }) => status).filter((status) => status !== "queued" && status !== "published"),
    []
  )
})

const Ready = Schema.fromJsonString(
  Schema.Struct({
    status: Schema.String,
    parts: Schema.Struct({
      broker: Schema.Struct({ status: Schema.String }),
      dispatcher: Schema.Struct({ pausedTopics: Schema.Array(Schema.Struct({ attempt: Schema.Number })) })
    })
  })
)
const decodeReady = Schema.decodeUnknownSync(Ready)

const orders = 20

/** Places that many orders concurrently. Each one is accepted. */
const placeOrders = (url: string) =>
  Effect.forEach(
    Array.from({ length: orders }),
    () =>
      Effect.promise(async () => {
        const response = await fetch(`${url}/orders`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({
            customerId: "ada",
            currency: "EUR",
            lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
          })
        })
        assert.strictEqual(response.status, 201, await response.text())
      }),
    { concurrency: 5, discard: true }
  )

const readiness = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/health/ready`)
    return { code: response.status, ...decodeReady(await response.text()) }
  })

/** Eight concurrent sends, each with an old and a new client, and one question about the topic. */
const mostConnections = 24

describe.skipIf(local._tag === "Unavailable")("with a Kafka that fails", () => {
  layer(
    Layer.mergeAll(Node.layer, TestDatabase.layerPool, TestProcess.quiet).pipe(
      Layer.tap((context) => Effect.provide(Ledger.makeTables, context))
    ),
    { excludeTestServices: true, timeout: timeoutMillis }
  )((it) => {
    it.effect(
      "refused, a black hole, SIGSTOP: orders are taken, health says degraded, nothing burns or piles up, and it drains by itself",
      () =>
        Effect.gen(function* () {
          const { bootstrapServers, brokers, directBootstrapServers } = yield* Node
          const { freeze, proxy, thaw } = brokers[0]!
          const prefix = `outage-${randomUUID()}-`
          const service = yield* ServiceProcess.start({
            roles: "http,dispatcher",
            env: {
              DATABASE_URL: Redacted.value((yield* TestDatabase).url),
              DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
              KAFKA_BROKERS: bootstrapServers,
              KAFKA_PREFIX: prefix,
              OUTBOX_SEND_TIMEOUT_MILLIS: "1000",
              PORT: "0",
              LOG_LEVEL: "None"
            }
          })
          const url = service.url!
          yield* placeOrders(url)
          yield* Counters.drained
          for (const [what, begin, end] of [
            ["refused", Effect.andThen(proxy.refuse, proxy.reset), proxy.pass],
            ["a black hole", proxy.blackHole(), proxy.pass],
            ["SIGSTOP", freeze, thaw]
          ] as const) {
            yield* begin
            yield* placeOrders(url)
            yield* Counters.eventually(
              `health to say degraded: ${what}`,
              Effect.map(
                readiness(url),
                ({ code, parts, status }) =>
                  code === 200 &&
                  status === "degraded" &&
                  parts.broker.status === "degraded" &&
                  parts.dispatcher.pausedTopics.some(({ attempt }) => attempt >= 2)
              )
            )
            // However long the outage takes.
            yield* placeOrders(url)
            assert.isAtMost(yield* proxy.connections, mostConnections, what)
            yield* assertNothingBurned
            yield* end
            yield* Counters.drained
            yield* Counters.eventually(
              `health to say ready after: ${what}`,
              Effect.map(
                readiness(url),
                ({ code, parts, status }) => code === 200 && status === "ready" && parts.broker.status === "ready"
              )
            )
          }
          yield* assertNothingBurned
          const sql = yield* PgClient.PgClient
          const archived = yield* sql<{ readonly id: string }>`
            SELECT event_id::text AS id FROM event_log WHERE topic = 'orders' ORDER BY event_id`
          const records = yield* readTopic(directBootstrapServers, `${prefix}orders`)
          assert.strictEqual(archived.length, 7 * orders)
          assert.deepStrictEqual(
            [...new Set(records.map(({ message }) => String(message.headers?.["event-id"])))].toSorted(),
            archived.map(({ id }) => id)
          )
        }),
      timeoutMillis
    )

    it.effect(
      "a missing topic, denied access and a clock that is off pause that topic only, and heal by themselves",
      () =>
        Effect.gen(function* () {
          const { bootstrapServers, directBootstrapServers } = yield* Node
          const prefix = `mend-${randomUUID()}-`
          const admin = yield* KafkaMember.admin(directBootstrapServers)
          const create = (topic: string, config: Readonly<Record<string, string>> = {}) =>
            Effect.promise(() =>
              admin.createTopics({
                topics: [
                  {
                    topic: prefix + topic,
                    numPartitions: 4,
                    configEntries: Object.entries(config).map(([name, value]) => ({ name, value }))
                  }
                ]
              })
            )
          yield* create(Ledger.topic)
          yield* create("denied")
          // Refuses records that are older than a millisecond, like all records of a host whose clock is behind.
          yield* create("clock", { "message.timestamp.before.max.ms": "0" })
          const denial = {
            resourceType: kafkajs.AclResourceTypes.TOPIC,
            resourceName: `${prefix}denied`,
            resourcePatternType: kafkajs.ResourcePatternTypes.LITERAL,
            principal: "User:ANONYMOUS",
            host: "*",
            operation: kafkajs.AclOperationTypes.WRITE,
            permissionType: kafkajs.AclPermissionTypes.DENY
          }
          yield* Effect.promise(() => admin.createAcls({ acl: [denial] }))

          const broker = KafkaBroker.layer.pipe(
            Layer.provide(
              Layer.succeed(KafkaBroker.KafkaSettings, {
                brokers: bootstrapServers.split(","),
                prefix,
                createTopics: false,
                replication: 1,
                sendTimeoutMillis: 3_000,
                sessionTimeoutMillis: 10_000,
                clientId: "outage"
              })
            )
          )
          const context = yield* Layer.build(
            TestProcess.dispatcherOver(() => broker).pipe(
              Layer.provideMerge(TestProcess.outbox),
              Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
              Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 20, backoffCapMillis: 500 })),
              Layer.fresh
            )
          )
          const { all: pauses } = Context.get(context, PartitionPauses)
          const run = Effect.provide(context)
          const sql = yield* PgClient.PgClient
          const queuedTopics = Effect.map(
            sql<{ readonly topic: string }>`SELECT DISTINCT topic FROM outbox_events ORDER BY topic`,
            (rows) => rows.map(({ topic }) => topic)
          )
          const broken = ["clock", "denied", "missing"]
          for (const topic of [...broken, Ledger.topic]) {
            for (let index = 0; index < 10; index++) {
              yield* Transaction.run(Ledger.append(`${topic}-${index}`, 2, topic)).pipe(run)
            }
          }
          const paused = Effect.map(pauses, (all) =>
            all
              .filter(({ attempt }) => attempt >= 3)
              .map(({ topic }) => topic)
              .toSorted()
          )
          yield* Counters.eventually(
            "the broken topics to be paused",
            Effect.map(paused, (topics) => topics.join() === broken.join())
          )
          // In the same lanes, while the other topics still fail.
          for (let index = 0; index < 10; index++) {
            yield* Transaction.run(Ledger.append(`${Ledger.topic}-${index}`, 2)).pipe(run)
          }
          yield* Counters.eventually(
            "the good topic to be drained",
            Effect.map(queuedTopics, (topics) => topics.join() === broken.join())
          )
          const reasons = (yield* pauses).toSorted((a, b) => a.topic.localeCompare(b.topic)).map(({ reason }) => reason)
          assert.match(reasons[0]!, /INVALID_TIMESTAMP/)
          assert.match(reasons[1]!, /TOPIC_AUTHORIZATION_FAILED/)
          assert.match(reasons[2]!, /does not exist/)
          yield* assertNothingBurned

          yield* create("missing")
          yield* Effect.promise(() => admin.deleteAcls({ filters: [denial] }))
          yield* Effect.promise(() =>
            admin.alterConfigs({
              validateOnly: false,
              resources: [
                {
                  type: kafkajs.ConfigResourceTypes.TOPIC,
                  name: `${prefix}clock`,
                  configEntries: [{ name: "message.timestamp.before.max.ms", value: "86400000" }]
                }
              ]
            })
          )
          yield* Counters.drained
          const truth = yield* Ledger.committed
          for (const topic of [...broken, Ledger.topic]) {
            const { problems } = Ledger.check(
              yield* Ledger.deliveredKafka(directBootstrapServers, prefix + topic),
              truth.filter(({ id }) => id.startsWith(`${topic}-`))
            )
            assert.deepStrictEqual(problems, [], topic)
          }
        }),
      timeoutMillis
    )

    it.effect(
      "cut off from one of two dispatchers alone: its lanes go to the other one, and come back afterwards",
      () =>
        Effect.gen(function* () {
          const { bootstrapServers, directBootstrapServers } = yield* Node
          const prefix = `cut-${randomUUID()}-`
          const start = Effect.fnUntraced(function* () {
            const { broker, proxy } = yield* KafkaMember.make(bootstrapServers, { prefix, sendTimeoutMillis: 3_000 })
            const context = yield* Layer.build(
              TestProcess.dispatcherOver(() => Layer.succeed(Broker, broker)).pipe(
                Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
                Layer.provide(Layer.succeed(ReachabilitySettings, { strandedMillis: 500, askMillis: 500 })),
                Layer.provideMerge(TestProcess.outbox),
                Layer.fresh
              )
            )
            return { proxy, context, lanes: Context.get(context, LaneWorkers).lanes }
          })
          const [one, two] = [yield* start(), yield* start()]
          const dealt = (parts: readonly [number, number]) =>
            Counters.eventually(
              `lanes to be dealt ${parts.join(", ")}`,
              Effect.map(
                Effect.all([one.lanes, two.lanes]),
                (held) => held.map(({ length }) => length).join() === parts.join()
              )
            )
          const ids = Array.from({ length: 100 }, (_, index) => `cut-${index}`)
          const write = Effect.forEach(ids, (id) => Transaction.run(Ledger.append(id, 2)), { discard: true }).pipe(
            Effect.provide(one.context)
          )
          yield* dealt([laneCount / 2, laneCount / 2])
          yield* write
          yield* Counters.drained
          for (const cut of [one.proxy.blackHole(), Effect.andThen(one.proxy.refuse, one.proxy.reset)]) {
            yield* cut
            yield* write
            yield* Counters.drained
            yield* dealt([0, laneCount])
            yield* one.proxy.pass
            yield* dealt([laneCount / 2, laneCount / 2])
            yield* write
            yield* Counters.drained
          }
          yield* assertNothingBurned
          const { problems } = Ledger.check(
            yield* Ledger.deliveredKafka(directBootstrapServers, prefix + Ledger.topic),
            (yield* Ledger.committed).filter(({ id }) => ids.includes(id))
          )
          assert.deepStrictEqual(problems, [])
        }),
      timeoutMillis
    )
  })
})
