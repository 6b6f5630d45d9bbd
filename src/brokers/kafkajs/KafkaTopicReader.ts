/**
 * Reads a topic of Kafka from any offset on, as a member of no group. kafkajs gives records to members of groups alone, and a member waits some seconds
 * until it has joined. So this asks the leaders itself, through the cluster that kafkajs has inside each client.
 *
 * Source: `CREATE_CLUSTER` in kafkajs/src/index.js; `fetch` in consumer/consumerGroup.js and broker/index.js; consumer/batch.js.
 */
import { Clock, Effect, Layer, Schedule } from "effect"
import type { KafkaMessage } from "kafkajs"
import { createRequire } from "node:module"
import { type TopicRange, TopicReader } from "../TopicReader.ts"
import { adminRequestTimeoutMillis, ask } from "./KafkaAdmin.ts"
import { type Client, close, KafkaSettings, makeClients } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import { toRecord } from "./KafkaReader.ts"

const require = createRequire(import.meta.url)

interface Fetched {
  readonly partition: number
  readonly highWatermark: string
  readonly messages: ReadonlyArray<KafkaMessage>
}

/** kafkajs' connections to the brokers of a cluster, as far as a reader needs them. */
interface Cluster {
  readonly connect: () => Promise<void>
  readonly disconnect: () => Promise<void>
  readonly addTargetTopic: (topic: string) => Promise<void>
  readonly refreshMetadata: () => Promise<void>
  readonly findTopicPartitionMetadata: (topic: string) => ReadonlyArray<{ readonly partitionId: number }>
  readonly findLeaderForPartitions: (
    topic: string,
    partitions: ReadonlyArray<number>
  ) => Readonly<Record<string, ReadonlyArray<number>>>
  readonly findBroker: (node: { readonly nodeId: string }) => Promise<{
    readonly fetch: (request: object) => Promise<{
      readonly responses: ReadonlyArray<{ readonly partitions: ReadonlyArray<Fetched> }>
    }>
  }>
  readonly fetchTopicsOffset: (
    topics: ReadonlyArray<object>
  ) => Promise<
    ReadonlyArray<{ readonly partitions: ReadonlyArray<{ readonly partition: number; readonly offset: string }> }>
  >
}

/** The records of an answer: what kafkajs' own consumers make of it. */
interface Batch {
  readonly messages: ReadonlyArray<KafkaMessage>
  readonly lastOffset: () => string
}
const Batch = require("kafkajs/src/consumer/batch.js") as new (topic: string, offset: string, fetched: Fetched) => Batch

const clusterOf = ({ kafka }: Client): Cluster => {
  const key = Object.getOwnPropertySymbols(kafka).find(
    ({ description }) => description === "private:Kafka:createCluster"
  )
  // The method has no public name.
  return (kafka as unknown as Record<symbol, (options: object) => Cluster>)[key!]!({
    allowAutoTopicCreation: false,
    metadataMaxAge: Number.MAX_SAFE_INTEGER
  })
}

/** The most bytes of one fetch. A larger batch comes all the same. */
const maxFetchBytes = 1_048_576

/** How long a broker may wait for the first byte. The offsets that are asked for are there. */
const maxWaitMillis = 250

const closeGraceMillis = 1_000

/** A leader that moves is found again within seconds, and so is a broker that restarts. */
const untilBack = Schedule.spaced("500 millis").pipe(Schedule.upTo({ times: 10 }))

/** See {@link TopicReader}. */
export const layer: Layer.Layer<TopicReader, never, KafkaSettings> = Layer.effect(
  TopicReader,
  Effect.gen(function* () {
    const { access = {}, prefix } = yield* KafkaSettings
    const { toUnavailable } = KafkaErrors.make(access, yield* Clock.Clock)
    const clients = yield* makeClients

    return TopicReader.make((topic) => {
      const wireTopic = prefix + topic
      const unavailable = (cause: unknown) =>
        toUnavailable("read topic", topic, { operation: "Read", topic: wireTopic }, cause)
      const asked = <A>(question: () => Promise<A>) => Effect.mapError(ask(question), unavailable)

      return Effect.gen(function* () {
        const { cluster } = yield* Effect.acquireRelease(
          Effect.sync(() => {
            const client = clients.open({
              requestTimeoutMillis: adminRequestTimeoutMillis,
              retries: 0,
              acceptsPartialMetadata: true
            })
            return { client, cluster: clusterOf(client) }
          }),
          ({ client, cluster }) => close(client, () => cluster.disconnect(), closeGraceMillis)
        )
        yield* asked(() => cluster.connect())
        yield* asked(() => cluster.addTargetTopic(wireTopic))

        const offsets = (fromBeginning: boolean) =>
          asked(async () => {
            const partitions = cluster
              .findTopicPartitionMetadata(wireTopic)
              .map(({ partitionId }) => ({ partition: partitionId }))
            const [found] = await cluster.fetchTopicsOffset([{ topic: wireTopic, partitions, fromBeginning }])
            return new Map((found?.partitions ?? []).map(({ offset, partition }) => [partition, BigInt(offset)]))
          })
        const bounds = Effect.gen(function* () {
          const ends = yield* offsets(false)
          const starts = yield* offsets(true)
          return [...ends]
            .map(([partition, end]): TopicRange => ({ partition, start: starts.get(partition) ?? end, end }))
            .toSorted((one, other) => one.partition - other.partition)
        })

        const fetchOnce = (partition: number, offset: bigint) =>
          ask(async () => {
            const [nodeId] = Object.keys(cluster.findLeaderForPartitions(wireTopic, [partition]))
            const broker = await cluster.findBroker({ nodeId: nodeId! })
            const { responses } = await broker.fetch({
              maxWaitTime: maxWaitMillis,
              minBytes: 1,
              maxBytes: maxFetchBytes,
              // As in KafkaConsumer.ts: a foreign transaction that stays open would keep back all that comes after it.
              isolationLevel: 0,
              topics: [
                {
                  topic: wireTopic,
                  partitions: [{ partition, fetchOffset: String(offset), maxBytes: maxFetchBytes }]
                }
              ]
            })
            const [fetched] = responses.flatMap(({ partitions }) => partitions)
            const batch = new Batch(wireTopic, String(offset), { ...fetched!, messages: fetched?.messages ?? [] })
            return { records: batch.messages.map(toRecord), next: BigInt(batch.lastOffset()) + 1n }
          })
        const fetch = (partition: number, offset: bigint) =>
          fetchOnce(partition, offset).pipe(
            // Retention has dropped the offset meanwhile.
            Effect.catchIf(
              (error) => KafkaErrors.isProtocolError(error, "OFFSET_OUT_OF_RANGE"),
              () => Effect.map(offsets(true), (starts) => ({ records: [], next: starts.get(partition) ?? offset }))
            ),
            Effect.mapError(unavailable),
            Effect.tapError(() => Effect.ignore(ask(() => cluster.refreshMetadata()))),
            Effect.retry({ schedule: untilBack, while: ({ _tag }) => _tag === "BrokerUnavailable" })
          )
        return { bounds, fetch }
      })
    })
  })
)
