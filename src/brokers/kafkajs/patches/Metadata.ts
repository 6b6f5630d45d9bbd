/** Repairs of how kafkajs asks for metadata, and of what it accepts. */
import { createRequire } from "node:module"
import { oneRequestWith, type Protocol } from "./Requests.ts"

const require = createRequire(import.meta.url)

/** The protocol's LEADER_NOT_AVAILABLE. */
const leaderNotAvailable = 5

/** The `socketFactory` of each client that accepts a topic in which some partitions have no leader. */
const acceptingPartial = new WeakSet<object>()

/** Marks a client, by its `socketFactory`, as one that accepts the metadata of a topic in which some partitions have no leader. */
export const acceptPartialMetadataOf = (socketFactory: object) => {
  acceptingPartial.add(socketFactory)
}

/**
 * **Defect.** kafkajs refuses the metadata of a topic in which one partition has no leader. It asks again after five minutes or a lost
 * connection, and from then on nothing can be sent to the topic's healthy partitions either.
 *
 * **Repair.** A client that is marked by {@link acceptPartialMetadataOf} accepts the metadata. A send to a partition without a leader
 * (node -1) then fails by itself, because no such broker exists. Consumers are not marked: they would not fetch such a partition until
 * they ask for metadata again.
 *
 * Source: `parse` in kafkajs/src/protocol/requests/metadata/v0/response.js, used by all versions; `metadata` in broker/index.js.
 */
export const acceptPartialMetadata = () => {
  interface Metadata {
    readonly topicMetadata: ReadonlyArray<{
      readonly partitionMetadata: ReadonlyArray<{ readonly partitionErrorCode: number }>
    }>
  }
  interface Response {
    readonly parse: (data: Metadata) => Promise<Metadata>
  }
  interface Broker {
    readonly connectionPool: { readonly socketFactory: object }
    readonly lookupRequest: (apiKey: number, definition: unknown) => Protocol<unknown, Response>
    metadata: (topics: ReadonlyArray<string>) => Promise<Metadata>
  }
  const { prototype } = require("kafkajs/src/broker/index.js") as { readonly prototype: Broker }
  const metadata = prototype.metadata
  const withoutMissingLeaders = (data: Metadata): Metadata => ({
    ...data,
    topicMetadata: data.topicMetadata.map((topic) => ({
      ...topic,
      partitionMetadata: topic.partitionMetadata.map((partition) =>
        partition.partitionErrorCode === leaderNotAvailable ? { ...partition, partitionErrorCode: 0 } : partition
      )
    }))
  })
  prototype.metadata = function (this: Broker, topics: ReadonlyArray<string>) {
    if (!acceptingPartial.has(this.connectionPool.socketFactory)) return metadata.call(this, topics)
    const broker = oneRequestWith<Broker, unknown, Response>(this, ({ request, response }) => ({
      request,
      response: { ...response, parse: (data) => response.parse(withoutMissingLeaders(data)) }
    }))
    return metadata.call(broker, topics)
  }
}

/**
 * **Defect.** kafkajs asks the brokers one after the other, in random order, what any of them can answer, and gives up at the first one
 * that refuses its connection. When all of them refuse, it returns undefined, on which its caller fails. For the controller it asks the
 * broker that the metadata names. Kafka 4 names a random broker there, because every broker forwards such requests, and that one may be
 * unreachable.
 *
 * **Repair.** kafkajs asks the next broker after a failure, starts with connected ones, and fails with the last error. Requests for the
 * controller go to a connected broker.
 *
 * Source: `withBroker` in kafkajs/src/cluster/brokerPool.js, `findControllerBroker` in cluster/index.js; in Apache Kafka
 * `getRandomAliveBrokerId` of KRaftMetadataCache.
 */
export const askNextBroker = () => {
  interface Broker {
    readonly isConnected: () => boolean
  }
  interface BrokerPool {
    readonly brokers: Readonly<Record<string, Broker>>
    readonly findBroker: (options: { readonly nodeId: string }) => Promise<Broker>
    readonly findConnectedBroker: () => Promise<Broker>
    withBroker: <A>(ask: (one: { readonly nodeId: string; readonly broker: Broker }) => Promise<A>) => Promise<A>
  }
  interface Cluster {
    readonly brokerPool: BrokerPool
    findControllerBroker: () => Promise<Broker>
  }
  const { prototype } = require("kafkajs/src/cluster/brokerPool.js") as { readonly prototype: BrokerPool }
  const cluster = require("kafkajs/src/cluster/index.js") as { readonly prototype: Cluster }
  const shuffle = require("kafkajs/src/utils/shuffle.js") as <A>(all: ReadonlyArray<A>) => ReadonlyArray<A>
  cluster.prototype.findControllerBroker = function (this: Cluster) {
    return this.brokerPool.findConnectedBroker()
  }
  const withBroker = prototype.withBroker
  prototype.withBroker = async function <A>(
    this: BrokerPool,
    ask: (one: { readonly nodeId: string; readonly broker: Broker }) => Promise<A>
  ) {
    const shuffled = shuffle(Object.entries(this.brokers))
    const [first, ...others] = shuffled.toSorted(
      ([, one], [, other]) => Number(other.isConnected()) - Number(one.isConnected())
    )
    if (first === undefined) return withBroker.call(this, ask) as Promise<A>
    const askOne = async ([nodeId]: readonly [string, Broker]) =>
      ask({ nodeId, broker: await this.findBroker({ nodeId }) })
    return others.reduce((answer, next) => answer.catch(() => askOne(next)), askOne(first))
  }
}
