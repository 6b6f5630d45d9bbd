/**
 * Seven places where kafkajs 2.2.4 is changed from outside. Its version is pinned exactly, and the tests of test/kafka run through all.
 */
import type { Message } from "kafkajs"
import { createRequire } from "node:module"
import type { Socket } from "node:net"

const require = createRequire(import.meta.url)

/**
 * Every connection of kafkajs 2.2.4 looks for waiting requests each millisecond, for ever and with none waiting: half of what an idle
 * consumer costs, and since Node 24 a warning on the console, for the wait is asked for as a negative number. With this it
 * looks when something waits.
 *
 * Source: `scheduleCheckPendingRequests` in kafkajs/src/network/requestQueue/index.js.
 */
const stopIdlePolling = () => {
  interface RequestQueue {
    readonly pending: ReadonlyArray<unknown>
    readonly throttledUntil: number
    scheduleCheckPendingRequests: () => void
  }
  const { prototype } = require("kafkajs/src/network/requestQueue/index.js") as { readonly prototype: RequestQueue }
  const schedule = prototype.scheduleCheckPendingRequests
  prototype.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (this.pending.length > 0 || this.throttledUntil > Date.now()) schedule.call(this)
  }
}

/** Marks a message that is a whole record batch. */
const encoded = Symbol("paid-once/encodedBatch")

/** Bytes of a produce request in front of its one batch. */
export const requestHeadBytes = (topic: string): number => 26 + Buffer.byteLength(topic)

/** What becomes of a batch on its way. */
export interface Sending {
  /** Set by the sender: a batch that still waits for its connection must not go out any more. */
  isGivenUp: boolean
  /** Set when it goes out: the broker (`host:port`) that it goes to. */
  broker: string | undefined
}

/**
 * A message that stands for a whole batch, encoded already (RecordBatch.ts) with {@link requestHeadBytes} of room in front. It must be
 * the only one of its send.
 */
export const encodedBatch = (partition: number, roomAndBatch: Buffer, sending: Sending): Message =>
  Object.assign({ value: roomAndBatch, partition }, { [encoded]: sending })

/** The part of a produce request that we read. */
interface ProduceArguments {
  readonly acks: number
  readonly timeout: number
  readonly topicData: ReadonlyArray<{
    readonly topic: string
    readonly partitions: ReadonlyArray<{
      readonly partition: number
      readonly messages: ReadonlyArray<Message & { readonly [encoded]?: Sending }>
    }>
  }>
}

/** The versions of a produce request that carry record batches and are encoded alike. */
const firstVersion = 3
const lastVersion = 8

/** Writes the head of a produce request in front of its batch: no transaction, one topic, one partition. */
const completeRequest = (
  { acks, timeout }: ProduceArguments,
  topic: string,
  partition: number,
  roomAndBatch: Buffer
): Buffer => {
  const room = requestHeadBytes(topic)
  let place = roomAndBatch.writeInt16BE(-1, 0)
  place = roomAndBatch.writeInt16BE(acks, place)
  place = roomAndBatch.writeInt32BE(timeout, place)
  place = roomAndBatch.writeInt32BE(1, place)
  place = roomAndBatch.writeInt16BE(Buffer.byteLength(topic), place)
  place += roomAndBatch.write(topic, place)
  place = roomAndBatch.writeInt32BE(1, place)
  place = roomAndBatch.writeInt32BE(partition, place)
  roomAndBatch.writeInt32BE(roomAndBatch.length - room, place)
  return roomAndBatch
}

/**
 * kafkajs encodes each record by itself, at some 30 µs of CPU with an event's headers. A message of {@link encodedBatch} is put into
 * the request as it is; all the rest (who leads the partition, connections, time-outs, what an answer means) stays kafkajs'.
 *
 * Source: `produce` in kafkajs/src/broker/index.js, protocol/requests/produce/v3/request.js.
 */
const takeEncodedBatches = () => {
  interface Request {
    readonly apiVersion: number
    readonly encode: () => Promise<unknown>
  }
  type Protocol = (args: ProduceArguments) => { readonly request: Request; readonly response: unknown }
  interface Broker {
    readonly brokerAddress: string
    readonly lookupRequest: (apiKey: number, definition: unknown) => Protocol
    produce: (args: ProduceArguments) => Promise<unknown>
  }
  const { prototype } = require("kafkajs/src/broker/index.js") as { readonly prototype: Broker }
  const produce = prototype.produce
  prototype.produce = function (this: Broker, args: ProduceArguments) {
    const data = args.topicData[0]
    const part = data?.partitions[0]
    const message = part?.messages[0]
    const sending = message?.[encoded]
    if (data === undefined || part === undefined || message === undefined || sending === undefined) {
      return produce.call(this, args)
    }
    if (sending.isGivenUp) return Promise.reject(new Error("the batch was given up"))
    sending.broker = this.brokerAddress
    if (args.topicData.length + data.partitions.length + part.messages.length !== 3) {
      return Promise.reject(new Error("an encoded batch must be the only message of its send"))
    }
    const withBatch = (protocol: Protocol): Protocol => {
      return (given) => {
        const { request, response } = protocol(given)
        if (request.apiVersion < firstVersion || request.apiVersion > lastVersion) {
          throw new Error(`produce requests of version ${request.apiVersion} are not known here`)
        }
        const buffer = completeRequest(args, data.topic, part.partition, message.value as Buffer)
        // What kafkajs wants of an encoder.
        return { request: { ...request, encode: () => Promise.resolve({ buf: buffer, buffer }) }, response }
      }
    }
    // The same broker, but for how it finds the protocol of this one request.
    const broker = Object.create(this, {
      lookupRequest: {
        value: (apiKey: number, definition: unknown) => withBatch(this.lookupRequest(apiKey, definition))
      }
    }) as Broker
    return produce.call(broker, args)
  }
}

/**
 * A connection of kafkajs is one object for all the sockets that it has, one after the other, and mixes them up:
 *
 * - One that breaks in the middle of an answer is opened again with the first half of that answer still in its buffer: from then on it cuts the bytes
 *   of every answer in the wrong places. It waits for answers that have come, however often it is opened again, or throws where
 *   nobody catches it, and the process is gone (seen where brokers were killed for minutes).
 * - The end of the socket before closes the one that is in use, with all its requests.
 * - Two requests that find it closed open a socket each. One is left over, and its end, minutes later, closes the other.
 *
 * With this each opening begins with an empty buffer, hears nothing more of the socket before, and is one for all who ask for it meanwhile; and what
 * can't be read ends the connection.
 *
 * Source: `connect` and `processData` in kafkajs/src/network/connection.js.
 */
const beginAnew = () => {
  interface Connection {
    socket: Socket | undefined
    chunks: Array<Buffer>
    bytesBuffered: number
    bytesNeeded: number
    isConnected: () => boolean
    connect: () => Promise<unknown>
    processData: (data: Buffer) => void
  }
  const { prototype } = require("kafkajs/src/network/connection.js") as { readonly prototype: Connection }
  const { connect, processData } = prototype
  const openings = new WeakMap<Connection, Promise<unknown>>()
  prototype.connect = function (this: Connection) {
    if (this.isConnected()) return connect.call(this)
    const opening = openings.get(this)
    if (opening !== undefined) return opening
    const before = this.socket
    for (const event of ["data", "end", "timeout", "error"]) before?.removeAllListeners(event)
    // It still has to be read to its end, however it comes to that.
    before?.on("error", () => undefined).resume()
    this.chunks = []
    this.bytesBuffered = 0
    this.bytesNeeded = answerSizeBytes
    const next = connect.call(this).finally(() => openings.delete(this))
    openings.set(this, next)
    return next
  }
  prototype.processData = function (this: Connection, data: Buffer) {
    try {
      processData.call(this, data)
    } catch (cause) {
      this.socket?.destroy(new Error("an answer could not be read", { cause }))
    }
  }
}

/** Every answer begins with its size, an int32. */
const answerSizeBytes = 4

/**
 * A consumer of kafkajs that is stopped while its fetchers are made anew, for the brokers that it knows have changed, never ends: the new fetchers
 * are told that it does not run, and ask again, without a pause that would let anything else of the process happen. The process stands still for
 * good, with one core busy (seen where brokers were killed for minutes: the stop comes from a session that failed by the same blow). With this
 * the first such answer ends the fetchers, and with them the stop.
 *
 * Source: `fetch` in kafkajs/src/consumer/runner.js, `start` in fetcher.js and fetchManager.js.
 */
const endFetchersOfTheStopped = () => {
  interface Runner {
    readonly running: boolean
    fetch: (nodeId: number) => Promise<unknown>
  }
  const { prototype } = require("kafkajs/src/consumer/runner.js") as { readonly prototype: Runner }
  const fetch = prototype.fetch
  prototype.fetch = function (this: Runner, nodeId: number) {
    return this.running ? fetch.call(this, nodeId) : Promise.reject(new Error("this consumer has been stopped"))
  }
}

/**
 * A consumer of kafkajs that its group has forgotten joins it again; where that fails, it goes on fetching as if it had joined. As it has no name in the
 * group, it sends no heartbeats, so nobody tells it, and it never joins: it reads what others read, and its group is one member
 * short (seen where coordinators moved for minutes). With this a heartbeat that can't be sent for want of a name is answered as
 * the coordinator would: join.
 *
 * Source: `scheduleFetchManager` in kafkajs/src/consumer/runner.js, `heartbeat` in consumerGroup.js.
 */
const joinWhoIsNoMember = () => {
  interface ConsumerGroup {
    readonly memberId: string | null | undefined
    heartbeat: (options: unknown) => Promise<unknown>
  }
  const { prototype } = require("kafkajs/src/consumer/consumerGroup.js") as { readonly prototype: ConsumerGroup }
  const { createErrorFromCode } = require("kafkajs/src/protocol/error.js") as {
    readonly createErrorFromCode: (code: number) => Error
  }
  const heartbeat = prototype.heartbeat
  prototype.heartbeat = function (this: ConsumerGroup, options: unknown) {
    return this.memberId ? heartbeat.call(this, options) : Promise.reject(createErrorFromCode(unknownMemberId))
  }
}

/** The protocol's UNKNOWN_MEMBER_ID. */
const unknownMemberId = 25

/** The `socketFactory` of each client for which a partition without a leader is that partition's business. */
const partByPart = new WeakSet<object>()

/** Marks a client by its `socketFactory`: it reads the metadata of a topic of which a part is away. */
export const readPartByPart = (socketFactory: object) => {
  partByPart.add(socketFactory)
}

/**
 * kafkajs takes no metadata of a topic in which one partition has no leader, so that nothing can be sent to the others either as soon as it
 * wants to know anew: after five minutes, or when it has lost a connection. A client that is marked with {@link readPartByPart} takes what it is
 * told, and a send to a partition without a leader (-1) fails by itself, for there is no such broker.
 *
 * Not for consumers, which would wait for such a partition until they next ask, five minutes later.
 *
 * Source: `parse` in kafkajs/src/protocol/requests/metadata/v0/response.js, which is that of all versions; `metadata` in broker/index.js.
 */
const takeMetadataInParts = () => {
  interface Metadata {
    readonly topicMetadata: ReadonlyArray<{
      readonly partitionMetadata: ReadonlyArray<{ readonly partitionErrorCode: number }>
    }>
  }
  interface Response {
    readonly parse: (data: Metadata) => Promise<Metadata>
  }
  type Protocol = (args: unknown) => { readonly request: unknown; readonly response: Response }
  interface Broker {
    readonly connectionPool: { readonly socketFactory: object }
    readonly lookupRequest: (apiKey: number, definition: unknown) => Protocol
    metadata: (topics: ReadonlyArray<string>) => Promise<Metadata>
  }
  const { prototype } = require("kafkajs/src/broker/index.js") as { readonly prototype: Broker }
  const metadata = prototype.metadata
  const withoutRefusals = (data: Metadata): Metadata => ({
    ...data,
    topicMetadata: data.topicMetadata.map((topic) => ({
      ...topic,
      partitionMetadata: topic.partitionMetadata.map((partition) =>
        partition.partitionErrorCode === leaderNotAvailable ? { ...partition, partitionErrorCode: 0 } : partition
      )
    }))
  })
  prototype.metadata = function (this: Broker, topics: ReadonlyArray<string>) {
    if (!partByPart.has(this.connectionPool.socketFactory)) return metadata.call(this, topics)
    const inParts = (protocol: Protocol): Protocol => {
      return (given) => {
        const { request, response } = protocol(given)
        return { request, response: { ...response, parse: (data) => response.parse(withoutRefusals(data)) } }
      }
    }
    // As above: the same broker, but for this one request.
    const broker = Object.create(this, {
      lookupRequest: {
        value: (apiKey: number, definition: unknown) => inParts(this.lookupRequest(apiKey, definition))
      }
    }) as Broker
    return metadata.call(broker, topics)
  }
}

/** The protocol's LEADER_NOT_AVAILABLE. */
const leaderNotAvailable = 5

/**
 * What any broker may answer kafkajs asks them one after the other, in a random order, and gives up at the first that it can't connect to. And where
 * all refuse it says nothing, on which its caller stumbles. With this it goes on to the next one, begins with those that it is connected to, and
 * fails as the last one did.
 *
 * What used to be for the controller it asks the one that the metadata names; Kafka 4 names a random one, for any passes it on, and that may
 * be one that does not answer. With this it asks one that has answered.
 *
 * Source: `withBroker` in kafkajs/src/cluster/brokerPool.js, `findControllerBroker` in cluster/index.js; in Apache Kafka
 * `getRandomAliveBrokerId` of KRaftMetadataCache.
 */
const askTheNextOne = () => {
  interface Broker {
    readonly isConnected: () => boolean
  }
  interface BrokerPool {
    readonly brokers: Readonly<Record<string, Broker>>
    readonly findBroker: (options: { readonly nodeId: string }) => Promise<Broker>
    readonly findConnectedBroker: () => Promise<Broker>
    withBroker: <A>(ask: (one: { readonly nodeId: string; readonly broker: Broker }) => Promise<A>) => Promise<A>
  }
  const { prototype } = require("kafkajs/src/cluster/brokerPool.js") as { readonly prototype: BrokerPool }
  interface Cluster {
    readonly brokerPool: BrokerPool
    findControllerBroker: () => Promise<Broker>
  }
  const cluster = require("kafkajs/src/cluster/index.js") as { readonly prototype: Cluster }
  cluster.prototype.findControllerBroker = function (this: Cluster) {
    return this.brokerPool.findConnectedBroker()
  }
  const shuffle = require("kafkajs/src/utils/shuffle.js") as <A>(all: ReadonlyArray<A>) => ReadonlyArray<A>
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

/** Changes kafkajs, for this process: to be called once, before the first client. */
export const applyPatches = () => {
  stopIdlePolling()
  takeEncodedBatches()
  beginAnew()
  endFetchersOfTheStopped()
  joinWhoIsNoMember()
  takeMetadataInParts()
  askTheNextOne()
}
