/**
 * Publishing to Kafka: neither idempotent nor retrying (DESIGN.md 2.5), so that an acknowledgement is one, and an unknown outcome
 * is called unknown. Retrying is the dispatcher's job.
 */
import { Clock, Effect, FiberSet } from "effect"
import type { Producer, RecordMetadata } from "kafkajs"
import { type Batch, BrokerUnavailable, MessageRejected, type PublishError, TopicUnavailable } from "./Broker.ts"
import { type Client, type Clients, close, KafkaSettings } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import { encodedBatch, requestHeadBytes } from "./KafkaPatches.ts"
import * as RecordBatch from "./RecordBatch.ts"

/**
 * What one topic's batches are sent with.
 *
 * One for each topic: kafkajs asks for the metadata of all topics that a producer ever sent to at once, and one of them that
 * was deleted fails the others.
 */
interface Sender {
  readonly client: Client
  readonly producer: Producer
  readonly connected: Promise<void>
  sending: number
  retired: boolean
}

/** A goodbye waits for sends under way, and those are bounded themselves: this is the net. */
const closeGraceMillis = 2_000

/** Below `socket.request.max.bytes`, 104,857,600 by default: a broker cuts off who sends more, which would look like an outage for ever. */
const maxRequestBytes = 100_000_000

/** Publishes batches for as long as the scope is open. `outcome` hears of each exchange whether the broker took part in it. */
export const make = Effect.fnUntraced(function* (
  clients: Clients,
  outcome: (available: boolean) => Effect.Effect<void>
) {
  const { prefix, sendTimeoutMillis } = yield* KafkaSettings
  const senders = new Map<string, Sender>()
  yield* Effect.addFinalizer(() =>
    Effect.forEach(
      senders.values(),
      ({ client, producer }) => close(client, () => producer.disconnect(), closeGraceMillis),
      {
        concurrency: "unbounded",
        discard: true
      }
    )
  )
  const runFork = yield* FiberSet.makeRuntime<never, void, never>()

  const senderOf = (topic: string): Sender => {
    const known = senders.get(topic)
    if (known !== undefined) return known
    const client = clients.open({ requestTimeoutMillis: sendTimeoutMillis, retries: 0 })
    const producer = client.kafka.producer({
      idempotent: false,
      allowAutoTopicCreation: false,
      retry: { retries: 0 },
      // Every message names its partition. (A partitioner of one's own also silences a warning about kafkajs' default one.)
      createPartitioner:
        () =>
        ({ message }) =>
          message.partition!
    })
    const connected = producer.connect()
    // Each send waits for it; without one there would be an unhandled rejection.
    connected.catch(() => {})
    const sender: Sender = { client, producer, connected, sending: 0, retired: false }
    senders.set(topic, sender)
    return sender
  }

  /** The next batch gets a fresh sender: connections, and who leads which partition. What this one is still sending may end. */
  const retire = (topic: string, sender: Sender) => {
    sender.retired = true
    if (senders.get(topic) === sender) senders.delete(topic)
    closeWhenDone(sender)
  }
  const closeWhenDone = ({ client, producer, retired, sending }: Sender) => {
    if (retired && sending === 0) runFork(close(client, () => producer.disconnect(), closeGraceMillis))
  }

  const send = async (
    sender: Sender,
    topic: string,
    batch: Batch,
    timestampMillis: number
  ): Promise<Array<RecordMetadata>> => {
    sender.sending++
    try {
      await sender.connected
      return await sender.producer.send({
        topic,
        acks: -1,
        // How long the broker waits for its replicas. It answers before we give up, or it is of no use to us.
        timeout: Math.ceil(sendTimeoutMillis / 2),
        messages: [
          encodedBatch(batch.partition, RecordBatch.encode(batch.records, timestampMillis, requestHeadBytes(topic)))
        ]
      })
    } finally {
      sender.sending--
      closeWhenDone(sender)
    }
  }

  /** An answer counts only when it names exactly what was asked: kafkajs takes others for success. */
  const confirm = (
    wireTopic: string,
    { partition, topic }: Batch,
    answers: ReadonlyArray<RecordMetadata>
  ): Effect.Effect<{ readonly baseOffset: bigint }, PublishError> => {
    const [answer, ...others] = answers
    if (answer === undefined) {
      // kafkajs drops partitions that are missing from the metadata without a word: nothing was sent.
      return Effect.fail(new TopicUnavailable({ topic, reason: `it has no partition ${partition}` }))
    }
    const { baseOffset } = answer
    return others.length === 0 &&
      answer.topicName === wireTopic &&
      answer.partition === partition &&
      answer.errorCode === 0 &&
      baseOffset !== undefined &&
      BigInt(baseOffset) >= 0n
      ? Effect.succeed({ baseOffset: BigInt(baseOffset) })
      : Effect.fail(
          new BrokerUnavailable({
            operation: "publish",
            cause: new Error(`the answer does not confirm ${wireTopic}/${partition}: ${JSON.stringify(answers)}`)
          })
        )
  }

  const publish = Effect.fnUntraced(function* (
    batch: Batch
  ): Effect.fn.Return<{ readonly baseOffset: bigint }, PublishError> {
    const { partition, records, topic } = batch
    const bytes = records.reduce((sum, { value }) => sum + value.length, 0)
    if (bytes > maxRequestBytes) {
      return yield* new MessageRejected({ topic, partition, reason: `${bytes} bytes do not fit into a request` })
    }
    const wireTopic = prefix + topic
    const timestampMillis = yield* Clock.currentTimeMillis
    const sender = senderOf(topic)
    return yield* Effect.tryPromise({
      try: () => send(sender, wireTopic, batch, timestampMillis),
      catch: (cause) => KafkaErrors.toPublishError(topic, partition, cause)
    }).pipe(
      Effect.timeoutOrElse({
        duration: sendTimeoutMillis,
        orElse: () => {
          // Whatever waits behind it on these connections is as lost, and a batch that was given up must not go out later.
          sender.client.cut()
          return Effect.fail(
            new BrokerUnavailable({
              operation: "publish",
              cause: new Error(`no answer within ${sendTimeoutMillis} ms`)
            })
          )
        }
      }),
      Effect.flatMap((answers) => confirm(wireTopic, batch, answers)),
      Effect.tapError((error) =>
        Effect.sync(() => (error._tag === "MessageRejected" ? undefined : retire(topic, sender)))
      ),
      Effect.tapError((error) => outcome(error._tag !== "BrokerUnavailable")),
      Effect.tap(() => outcome(true))
    )
  })
  return { publish }
})
