/** Produce requests that carry a batch encoded by RecordBatch.ts instead of by kafkajs. */
import type { Message, RecordMetadata } from "kafkajs"
import { createRequire } from "node:module"
import type { Exchange, Protocol } from "./Requests.ts"

const require = createRequire(import.meta.url)

/** Marks a message that stands for a whole record batch. The same where this module is loaded twice. */
const encoded = Symbol.for("paid-once/encodedBatch")

const { createErrorFromCode, failure } = require("kafkajs/src/protocol/error.js") as {
  readonly failure: (errorCode: number) => boolean
  readonly createErrorFromCode: (errorCode: number) => Error
}
const apiKeys = require("kafkajs/src/protocol/requests/apiKeys.js") as { readonly Produce: number }
const { requests } = require("kafkajs/src/protocol/requests/index.js") as {
  readonly requests: { readonly Produce: unknown }
}
const metadataOf = require("kafkajs/src/producer/responseSerializer.js") as (
  response: ProduceResponse
) => Array<RecordMetadata>
const { prototype } = require("kafkajs/src/broker/index.js") as { readonly prototype: KafkajsBroker }
const produce = prototype.produce
/** kafkajs' method for requests of all kinds, which has no public name. */
const sendRequest = Object.getOwnPropertySymbols(prototype).find(
  ({ description }) => description === "private:Broker:sendRequest"
)!

/** Bytes of a produce request before each batch: its partition and its size. */
const partHeadBytes = 8

/** Bytes of a produce request before its first batch. */
export const requestHeadBytes = (topic: string): number => 18 + Buffer.byteLength(topic) + partHeadBytes

/** The state of a batch that is being sent, shared between the producer and kafkajs. */
export interface Sending {
  /** Set by the producer: a batch that still waits for its connection must not be written any more. */
  isGivenUp: boolean
  /** Set when the request is written: the broker that receives it. */
  broker: KafkajsBroker | undefined
}

/** A broker of kafkajs, as far as it is used here. */
export interface KafkajsBroker {
  /** `host:port` */
  readonly brokerAddress: string
  /** False also when its user has to be proved again, and true also while it disconnects. */
  readonly isConnected: () => boolean
  /** Knows the versions of the broker's requests. Before the first connection it throws. */
  readonly lookupRequest: (apiKey: number, definition: unknown) => Protocol<ProduceArguments, ResponseParser>
  produce: (args: ProduceArguments) => Promise<ProduceResponse>
}

/**
 * A message that stands for a whole batch, encoded by RecordBatch.ts with {@link requestHeadBytes} of room before it. It must be the only
 * message of its send.
 */
export const encodedBatch = (partition: number, roomAndBatch: Buffer, sending: Sending): Message =>
  Object.assign({ value: roomAndBatch, partition }, { [encoded]: sending })

/** The fields that all batches of a request share. */
interface ProduceOptions {
  readonly acks: number
  /** How long the broker waits for its replicas, in milliseconds. */
  readonly timeout: number
}

/** The fields of kafkajs' produce arguments that are read here. */
interface ProduceArguments extends ProduceOptions {
  readonly topicData: ReadonlyArray<{
    readonly topic: string
    readonly partitions: ReadonlyArray<{
      readonly partition: number
      readonly messages: ReadonlyArray<Message & { readonly [encoded]?: Sending }>
    }>
  }>
}

/** A produce response as kafkajs decodes it. */
interface ProduceResponse {
  readonly topics: ReadonlyArray<{
    readonly topicName: string
    readonly partitions: ReadonlyArray<{ readonly partition: number; readonly errorCode: number }>
  }>
}

/** Decodes a response, and fails if it has an error. */
interface ResponseParser {
  readonly decode: (bytes: Buffer) => Promise<ProduceResponse>
  readonly parse: (response: ProduceResponse) => Promise<ProduceResponse>
}

/** The versions of a produce request that carry record batches and are encoded alike. */
const firstVersion = 3
const lastVersion = 8

/** A batch that waits for its request, or for the request's response. */
interface Part {
  readonly partition: number
  /** The batch, behind {@link requestHeadBytes} of room. */
  readonly roomAndBatch: Buffer
  readonly sending: Sending
  readonly resolve: (response: ProduceResponse) => void
  readonly reject: (error: unknown) => void
}

/** Batches of one topic that share a request to a broker. */
interface Shared {
  readonly topic: string
  readonly options: ProduceOptions
  readonly parts: Array<Part>
  bytes: number
}

/** Larger batches gain nothing from sharing a request, and would be copied once more for it. */
const sharedBytes = 256_000

/** The request's body: no transaction, one topic, and the batch of each part behind its partition and size. */
const encodeRequest = ({ options: { acks, timeout }, parts, topic }: Shared): Buffer => {
  const room = requestHeadBytes(topic)
  for (const { partition, roomAndBatch } of parts) {
    roomAndBatch.writeInt32BE(partition, room - partHeadBytes)
    roomAndBatch.writeInt32BE(roomAndBatch.length - room, room - 4)
  }
  const first = parts[0]!.roomAndBatch
  let position = first.writeInt16BE(-1, 0)
  position = first.writeInt16BE(acks, position)
  position = first.writeInt32BE(timeout, position)
  position = first.writeInt32BE(1, position)
  position = first.writeInt16BE(Buffer.byteLength(topic), position)
  position += first.write(topic, position)
  first.writeInt32BE(parts.length, position)
  if (parts.length === 1) return first
  const rest = parts.slice(1).map(({ roomAndBatch }) => roomAndBatch.subarray(room - partHeadBytes))
  return Buffer.concat([first, ...rest])
}

/**
 * Gives each part its own partition's response, or its error. If the response does not name each partition of the request exactly once, every
 * part gets the whole of it: the producer takes that for no confirmation.
 */
const settle = ({ parts, topic }: Shared, response: ProduceResponse) => {
  const answers = response.topics.flatMap(({ partitions, topicName }) => (topicName === topic ? partitions : []))
  const isExact =
    response.topics.length === 1 &&
    answers.length === parts.length &&
    parts.every(({ partition }) => answers.some((answer) => answer.partition === partition))
  for (const { partition, reject, resolve } of parts) {
    const own = answers.filter((answer) => !isExact || answer.partition === partition)
    const failed = own.find(({ errorCode }) => failure(errorCode))
    if (failed !== undefined) reject(createErrorFromCode(failed.errorCode))
    else resolve(isExact ? { ...response, topics: [{ topicName: topic, partitions: own }] } : response)
  }
}

/** The request of each broker that further batches may join. */
const joinable = new WeakMap<KafkajsBroker, Shared>()

type ProduceExchange = Exchange<ResponseParser>

/** By the function that looked it up, which knows the version. */
const exchanges = new WeakMap<KafkajsBroker["lookupRequest"], ProduceExchange>()

/** The broker's produce request but for its body. kafkajs loads modules for each request that it looks up. */
const exchangeOf = ({ lookupRequest }: KafkajsBroker): ProduceExchange => {
  const known = exchanges.get(lookupRequest)
  if (known !== undefined) return known
  const found = lookupRequest(apiKeys.Produce, requests.Produce)({ acks: -1, timeout: 0, topicData: [] })
  const { apiVersion } = found.request
  if (apiVersion < firstVersion || apiVersion > lastVersion) {
    throw new Error(`produce requests of version ${apiVersion} are not supported`)
  }
  // kafkajs' parser fails the whole response for one partition's error.
  const exchange = {
    ...found,
    response: { ...found.response, parse: (data: ProduceResponse) => Promise.resolve(data) }
  }
  exchanges.set(lookupRequest, exchange)
  return exchange
}

const send = async (broker: KafkajsBroker, shared: Shared): Promise<void> => {
  if (joinable.get(broker) === shared) joinable.delete(broker)
  const parts = shared.parts.filter(({ reject, sending }) => {
    if (sending.isGivenUp) reject(new Error("the batch was given up"))
    else sending.broker = broker
    return !sending.isGivenUp
  })
  if (parts.length === 0) return
  const sent = { ...shared, parts }
  try {
    const exchange = exchangeOf(broker)
    const buffer = encodeRequest(sent)
    // The two names under which kafkajs reads an encoder's result.
    const request = { ...exchange.request, encode: () => Promise.resolve({ buf: buffer, buffer }) }
    // No type has a symbol that is found at run time.
    const methods = broker as unknown as Record<symbol, (exchange: ProduceExchange) => Promise<ProduceResponse>>
    settle(sent, await methods[sendRequest]!({ ...exchange, request }))
  } catch (error) {
    for (const { reject } of parts) reject(error)
  }
}

const join = (broker: KafkajsBroker, topic: string, options: ProduceOptions, part: Part) => {
  const bytes = part.roomAndBatch.length
  const before = joinable.get(broker)
  const fits =
    before !== undefined &&
    before.topic === topic &&
    before.bytes + bytes <= sharedBytes &&
    before.parts.every(({ partition }) => partition !== part.partition)
  if (fits) {
    before.parts.push(part)
    before.bytes += bytes
    return
  }
  const shared: Shared = { topic, options, parts: [part], bytes }
  joinable.set(broker, shared)
  // After all promises that are settled already: the batches of one fetch are on their way here together.
  process.nextTick(() => void send(broker, shared))
}

/**
 * Sends a batch, encoded with {@link requestHeadBytes} of room, to this broker. Fails with kafkajs' errors, also if the broker does not lead the
 * partition any more. This leaves out kafkajs' producer: its search for the leader takes more CPU than the rest of a send in kafkajs.
 */
export const sendTo = async (
  broker: KafkajsBroker,
  {
    partition,
    roomAndBatch,
    sending,
    topic,
    ...options
  }: Omit<Part, "resolve" | "reject"> & ProduceOptions & { readonly topic: string }
): Promise<Array<RecordMetadata>> =>
  metadataOf(
    await new Promise<ProduceResponse>((resolve, reject) =>
      join(broker, topic, options, { partition, roomAndBatch, sending, resolve, reject })
    )
  )

/**
 * **Defect.** kafkajs encodes each record with growing buffers. With an event's headers that is the most expensive step of a send. And it makes a
 * request for each send, which costs the broker more than the batch in it.
 *
 * **Repair.** A message of {@link encodedBatch} is written into the request as it is. Batches of one topic that reach a broker in the same turn of the
 * event loop share a request. Each send has its own partition's response, so one partition's error is not the others'. A broker handles the
 * requests of a connection one after the other, so as a rule no batch waits longer than it would behind the other requests. The exception: one partition's
 * replicas lag. Then the request's answer waits for the broker's time limit, half of a send's. It happens once, for a partition that has failed is sent by a
 * client of its own. Connections, timeouts and the meaning of responses stay with kafkajs.
 *
 * Source: `produce` in kafkajs/src/broker/index.js, protocol/requests/produce/v3.
 */
export const sendEncodedBatches = () => {
  prototype.produce = function (this: KafkajsBroker, args: ProduceArguments) {
    const data = args.topicData[0]
    const part = data?.partitions[0]
    const message = part?.messages[0]
    const sending = message?.[encoded]
    if (data === undefined || part === undefined || message === undefined || sending === undefined) {
      return produce.call(this, args)
    }
    if (args.topicData.length + data.partitions.length + part.messages.length !== 3) {
      return Promise.reject(new Error("an encoded batch must be the only message of its send"))
    }
    const roomAndBatch = message.value as Buffer
    return new Promise((resolve, reject) => {
      join(this, data.topic, args, { partition: part.partition, roomAndBatch, sending, resolve, reject })
    })
  }
}
