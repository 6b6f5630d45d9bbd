/** Produce requests that carry a batch encoded by RecordBatch.ts instead of by kafkajs. */
import type { Message } from "kafkajs"
import { createRequire } from "node:module"
import { oneRequestWith, type Protocol } from "./Requests.ts"

const require = createRequire(import.meta.url)

/** Marks a message that stands for a whole record batch. */
const encoded = Symbol("paid-once/encodedBatch")

/** Bytes of a produce request before its only batch. */
export const requestHeadBytes = (topic: string): number => 26 + Buffer.byteLength(topic)

/** The state of a batch that is being sent, shared between the producer and kafkajs. */
export interface Sending {
  /** Set by the producer: a batch that still waits for its connection must not be written any more. */
  isGivenUp: boolean
  /** Set when the request is written: the broker (`host:port`) that receives it. */
  broker: string | undefined
}

/**
 * A message that stands for a whole batch, encoded by RecordBatch.ts with {@link requestHeadBytes} of room before it. It must be the only
 * message of its send.
 */
export const encodedBatch = (partition: number, roomAndBatch: Buffer, sending: Sending): Message =>
  Object.assign({ value: roomAndBatch, partition }, { [encoded]: sending })

/** The fields of kafkajs' produce arguments that are read here. */
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

/** Writes the head of a produce request before its batch: no transaction, one topic, one partition. */
const completeRequest = (
  { acks, timeout }: ProduceArguments,
  topic: string,
  partition: number,
  roomAndBatch: Buffer
): Buffer => {
  const room = requestHeadBytes(topic)
  let position = roomAndBatch.writeInt16BE(-1, 0)
  position = roomAndBatch.writeInt16BE(acks, position)
  position = roomAndBatch.writeInt32BE(timeout, position)
  position = roomAndBatch.writeInt32BE(1, position)
  position = roomAndBatch.writeInt16BE(Buffer.byteLength(topic), position)
  position += roomAndBatch.write(topic, position)
  position = roomAndBatch.writeInt32BE(1, position)
  position = roomAndBatch.writeInt32BE(partition, position)
  roomAndBatch.writeInt32BE(roomAndBatch.length - room, position)
  return roomAndBatch
}

/**
 * **Defect.** kafkajs encodes each record with growing buffers. With an event's headers that is the most expensive step of a send.
 *
 * **Repair.** A message of {@link encodedBatch} is written into the request as it is. Partition leaders, connections, timeouts and the
 * meaning of responses stay with kafkajs.
 *
 * Source: `produce` in kafkajs/src/broker/index.js, protocol/requests/produce/v3/request.js.
 */
export const sendEncodedBatches = () => {
  interface Broker {
    readonly brokerAddress: string
    readonly lookupRequest: (apiKey: number, definition: unknown) => Protocol<ProduceArguments, unknown>
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
    const broker = oneRequestWith<Broker, ProduceArguments, unknown>(this, ({ request, response }) => {
      if (request.apiVersion < firstVersion || request.apiVersion > lastVersion) {
        throw new Error(`produce requests of version ${request.apiVersion} are not supported`)
      }
      const buffer = completeRequest(args, data.topic, part.partition, message.value as Buffer)
      // The two names under which kafkajs reads an encoder's result.
      return { request: { ...request, encode: () => Promise.resolve({ buf: buffer, buffer }) }, response }
    })
    return produce.call(broker, args)
  }
}
