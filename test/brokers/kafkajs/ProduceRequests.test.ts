/** Batches that share a produce request, on a real Kafka, and responses that no Kafka should send. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schedule } from "effect"
import kafkajs from "kafkajs"
import { createRequire } from "node:module"
import { inject } from "vitest"
import { applyPatches } from "../../../src/brokers/kafkajs/KafkaPatches.ts"
import {
  type KafkajsBroker,
  encodedBatch,
  requestHeadBytes,
  type Sending,
  sendTo
} from "../../../src/brokers/kafkajs/patches/ProduceRequests.ts"
import { newTopic, publish, publishStubbornly } from "../../contracts/BrokerHarness.ts"
import { ApiKey } from "../../support/TcpProxy.ts"
import * as KafkaMember from "./KafkaMember.ts"

const require = createRequire(import.meta.url)

// Once more than KafkaClient.ts: a patch that patched itself would lose answers.
applyPatches()

const bootstrapServers = inject("kafkaBrokers")
if (bootstrapServers === null) {
  const missing = `only a part of ProduceRequests.test.ts ran (shared requests on a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

/** The brokers that kafkajs has found for a batch, while the scope is open. */
const leadersFound = Effect.gen(function* () {
  interface Cluster {
    findBroker: (options: unknown) => Promise<KafkajsBroker>
  }
  const { prototype: cluster } = require("kafkajs/src/cluster/index.js") as { readonly prototype: Cluster }
  const { findBroker } = cluster
  const found: Array<KafkajsBroker> = []
  cluster.findBroker = async function (this: Cluster, options: unknown) {
    const broker = await findBroker.call(this, options)
    found.push(broker)
    return broker
  }
  yield* Effect.addFinalizer(() => Effect.sync(() => (cluster.findBroker = findBroker)))
  return found
})

describe.skipIf(bootstrapServers === null)("on a real Kafka", () => {
  it.live(
    "batches of several partitions share a request, and each is acknowledged with its own offset or refused by itself",
    () =>
      Effect.gen(function* () {
        const member = yield* KafkaMember.make(bootstrapServers ?? "")
        const { topic } = yield* newTopic(member, 4)
        const admin = KafkaMember.kafkajs(bootstrapServers ?? "").admin()
        yield* Effect.promise(() =>
          admin.alterConfigs({
            validateOnly: false,
            resources: [
              {
                type: kafkajs.ConfigResourceTypes.TOPIC,
                name: KafkaMember.prefix + topic,
                configEntries: [{ name: "max.message.bytes", value: "1000" }]
              }
            ]
          })
        )
        yield* Effect.addFinalizer(() => Effect.promise(() => admin.disconnect()))
        yield* publish(member, topic, ["warm", "up"], 1)
        const requests = Effect.map(member.proxy.counters, ({ requestFrames }) => requestFrames[ApiKey.Produce]!)
        const before = yield* requests
        const results = yield* Effect.all(
          [["a"], ["b"], ["x".repeat(2_000)], ["c", "d"]].map((values, partition) =>
            Effect.result(publish(member, topic, values, partition))
          ),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(
          results.map(Result.match({ onSuccess: ({ baseOffset }) => baseOffset, onFailure: ({ _tag }) => _tag })),
          [0n, 2n, "MessageRejected", 0n]
        )
        assert.strictEqual((yield* requests) - before, 1)
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "after a partition's first batch kafkajs looks for its leader only when the connection has ended",
    () =>
      Effect.gen(function* () {
        const member = yield* KafkaMember.make(bootstrapServers ?? "")
        const { topic } = yield* newTopic(member, 4)
        const found = yield* leadersFound
        yield* publish(member, topic, ["a"], 0)
        assert.lengthOf(found, 1)
        yield* publish(member, topic, ["b"], 0)
        assert.lengthOf(found, 1)
        yield* member.proxy.reset
        yield* Effect.repeat(
          Effect.sync(() => found[0]!.isConnected()),
          { until: (isConnected) => !isConnected, schedule: Schedule.spaced("10 millis") }
        )
        yield* publishStubbornly(member, topic, ["c"])
        assert.isAbove(found.length, 1)
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "a connection that ends under a batch, as when a broker stops, is not taken for a demand of TLS or a user",
    () =>
      Effect.gen(function* () {
        const member = yield* KafkaMember.make(bootstrapServers ?? "")
        const { topic } = yield* newTopic(member, 4)
        yield* publish(member, topic, ["a"], 0)
        const dropped = yield* member.proxy.dropNextResponse({ apiKey: ApiKey.Produce })
        const error = yield* Effect.flip(publish(member, topic, ["b"], 0))
        yield* dropped
        assert.include(error, { _tag: "BrokerUnavailable" })
        assert.include(error.message, "Closed connection")
        assert.isUndefined("refusal" in error ? error.refusal : undefined)
      }).pipe(Effect.scoped),
    60_000
  )
})

type Response = {
  readonly topics: ReadonlyArray<{
    readonly topicName: string
    readonly partitions: ReadonlyArray<{ readonly partition: number; readonly errorCode: number }>
  }>
}

const { prototype } = require("kafkajs/src/broker/index.js") as {
  readonly prototype: { readonly produce: (args: object) => Promise<Response> }
}
const sendRequest = Object.getOwnPropertySymbols(prototype).find(({ description }) =>
  description?.endsWith("sendRequest")
)!

/** A kafkajs broker that counts requests and answers each of them with `response`. */
const brokerWith = (response: Response) => {
  const requests: Array<number> = []
  const broker = Object.create(prototype, {
    brokerAddress: { value: "127.0.0.1:9092" },
    lookupRequest: {
      value: () => () => ({
        request: { apiVersion: 7 },
        response: { parse: () => Promise.reject(new Error("the parser of kafkajs")) }
      })
    },
    [sendRequest]: {
      value: async (exchange: {
        readonly request: { readonly encode: () => Promise<{ readonly buf: Buffer }> }
        readonly response: { readonly parse: (data: Response) => Promise<Response> }
      }) => {
        requests.push((await exchange.request.encode()).buf.length)
        return await exchange.response.parse(response)
      }
    }
  }) as typeof prototype
  const send = (partition: number, bytes = 10, sending: Sending = { isGivenUp: false, broker: undefined }) =>
    broker.produce({
      acks: -1,
      timeout: 1_000,
      topicData: [
        {
          topic: "orders",
          partitions: [
            {
              partition,
              messages: [encodedBatch(partition, Buffer.alloc(requestHeadBytes("orders") + bytes), sending)]
            }
          ]
        }
      ]
    })
  const straight = (partition: number) =>
    sendTo(broker as unknown as KafkajsBroker, {
      topic: "orders",
      acks: -1,
      timeout: 1_000,
      partition,
      roomAndBatch: Buffer.alloc(requestHeadBytes("orders") + 10),
      sending: { isGivenUp: false, broker: undefined }
    })
  return { requests, send, straight }
}

const answer = (...partitions: ReadonlyArray<number>): Response => ({
  topics: [{ topicName: "orders", partitions: partitions.map((partition) => ({ partition, errorCode: 0 })) }]
})

it("a response that lacks a partition, or names another one, confirms none of the batches", async () => {
  for (const response of [answer(0), answer(0, 2), answer(0, 1, 2), answer(0, 0), { topics: [] }]) {
    const { send } = brokerWith(response)
    // Whole, so that the producer finds that it does not name exactly its partition.
    assert.deepStrictEqual(await Promise.all([send(0), send(1)]), [response, response])
  }
})

it("each batch gets the response of its own partition", async () => {
  const { requests, send } = brokerWith(answer(1, 0))
  assert.deepStrictEqual(await Promise.all([send(0), send(1)]), [answer(0), answer(1)])
  assert.strictEqual(requests.length, 1)
})

it("a batch that goes straight to its broker shares a request with one that kafkajs brings", async () => {
  const { requests, send, straight } = brokerWith(answer(1, 0))
  const [brought, own] = await Promise.all([send(0), straight(1)])
  assert.deepStrictEqual(brought, answer(0))
  assert.deepStrictEqual(own, [{ topicName: "orders", partition: 1, errorCode: 0 }])
  assert.strictEqual(requests.length, 1)
})

it("a batch that goes straight to a broker which does not lead its partition any more fails", async () => {
  const notLeader = { topicName: "orders", partitions: [{ partition: 0, errorCode: 6 }] }
  const [result] = await Promise.allSettled([brokerWith({ topics: [notLeader] }).straight(0)])
  assert.include(result.status === "rejected" ? result.reason : {}, { type: "NOT_LEADER_FOR_PARTITION" })
})

it("a batch that was given up is not written, and those beside it are", async () => {
  const { requests, send } = brokerWith(answer(0))
  const [kept, dropped] = await Promise.allSettled([send(0), send(1, 10, { isGivenUp: true, broker: undefined })])
  assert.strictEqual(kept.status, "fulfilled")
  assert.strictEqual(dropped.status, "rejected")
  assert.deepStrictEqual(requests, [requestHeadBytes("orders") + 10])
})

it("large batches and batches of one partition don't share a request", async () => {
  const large = brokerWith(answer(0))
  await Promise.all([large.send(0, 200_000), large.send(1, 200_000)])
  assert.strictEqual(large.requests.length, 2)
  const same = brokerWith(answer(0))
  await Promise.all([same.send(0), same.send(0)])
  assert.strictEqual(same.requests.length, 2)
})
