/**
 * Publishing to Kafka: neither idempotent nor retrying (DESIGN.md 2.5), so that an acknowledgement is one, and an unknown outcome
 * is called unknown. Retrying is the dispatcher's job.
 *
 * A partition whose send failed is tried with a client of its own, with fresh connections and fresh knowledge of who leads what, each time until
 * one arrives; that client is everybody's from then on. Until then the others keep theirs: what a broker does that answers nobody, or a leader
 * that has moved, is felt by the partitions that it leads, and as a rule by no other. (Every five minutes kafkajs asks any broker for the
 * topic's metadata, and all sends of the topic wait for that.)
 */
import { Clock, Effect, FiberSet } from "effect"
import type { Producer, RecordMetadata } from "kafkajs"
import { type Batch, BrokerUnavailable, MessageRejected, type PublishError, TopicUnavailable } from "../Broker.ts"
import { type Client, type Clients, close, KafkaSettings } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import { encodedBatch, requestHeadBytes, type Sending } from "./KafkaPatches.ts"
import * as RecordBatch from "./RecordBatch.ts"

/**
 * What batches of one topic are sent with.
 *
 * One for each topic: kafkajs asks for the metadata of all topics that a producer ever sent to at once, and one of them that
 * was deleted fails the others.
 */
interface Sender {
  readonly client: Client
  readonly producer: Producer
  readonly connected: Promise<void>
  isConnected: boolean
  /** Sends that have not ended. */
  underWay: number
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
  /** By topic: for all partitions but those that failed. */
  const senders = new Map<string, Sender>()
  /** All that are open, those for one send among them. */
  const open = new Set<Sender>()
  /** Partitions whose last send failed, with what was everybody's sender then. */
  const failed = new Map<string, Sender | undefined>()
  yield* Effect.addFinalizer(() =>
    Effect.forEach(open, ({ client, producer }) => close(client, () => producer.disconnect(), closeGraceMillis), {
      concurrency: "unbounded",
      discard: true
    })
  )
  const runFork = yield* FiberSet.makeRuntime<never, void, never>()

  const openSender = (): Sender => {
    const client = clients.open({ requestTimeoutMillis: sendTimeoutMillis, retries: 0, isPartByPart: true })
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
    const sender: Sender = { client, producer, connected, isConnected: false, underWay: 0, retired: false }
    // Each send waits for it; without one there would be an unhandled rejection.
    const noteWhenConnected = async () => {
      try {
        await connected
        sender.isConnected = true
      } catch {}
    }
    void noteWhenConnected()
    open.add(sender)
    return sender
  }

  const senderOf = (topic: string): Sender => {
    const known = senders.get(topic)
    if (known !== undefined) return known
    const sender = openSender()
    senders.set(topic, sender)
    return sender
  }

  /** It gets no other batch. What it is still sending may end. */
  const retire = (sender: Sender) => {
    sender.retired = true
    closeWhenDone(sender)
  }
  const closeWhenDone = (sender: Sender) => {
    const { client, producer, retired, underWay } = sender
    if (!retired || underWay > 0 || !open.delete(sender)) return
    runFork(close(client, () => producer.disconnect(), closeGraceMillis))
  }

  /** The sender of a partition that had failed has reached it: it knows best. */
  const adopt = (topic: string, sender: Sender) => {
    const before = senders.get(topic)
    senders.set(topic, sender)
    if (before !== undefined) retire(before)
  }

  /**
   * After a send that did not arrive, or of which that is not known: it must not go out later, and a connection that is not answered is of no use
   * to those who wait behind it either.
   */
  const giveUp = (topic: string, sender: Sender, isApart: boolean, sending: Sending, error: PublishError) => {
    sending.isGivenUp = true
    if (isApart || !sender.isConnected) {
      if (senders.get(topic) === sender) senders.delete(topic)
      sender.client.cut()
      return retire(sender)
    }
    const isAnswer = error._tag !== "BrokerUnavailable" || KafkaErrors.protocolErrorOf(error.cause) !== undefined
    if (!isAnswer && sending.broker !== undefined) sender.client.reset(sending.broker)
  }

  const send = async (
    sender: Sender,
    topic: string,
    batch: Batch,
    timestampMillis: number,
    sending: Sending
  ): Promise<Array<RecordMetadata>> => {
    await sender.connected
    return await sender.producer.send({
      topic,
      acks: -1,
      // How long the broker waits for its replicas. It answers before we give up, or it is of no use to us.
      timeout: Math.ceil(sendTimeoutMillis / 2),
      messages: [
        encodedBatch(
          batch.partition,
          RecordBatch.encode(batch.records, timestampMillis, requestHeadBytes(topic)),
          sending
        )
      ]
    })
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
      return yield* new MessageRejected({
        topic,
        partition,
        reason: `${bytes} bytes do not fit into a request`,
        isTooLarge: true
      })
    }
    const wireTopic = prefix + topic
    const timestampMillis = yield* Clock.currentTimeMillis
    const place = `${topic}\0${partition}`
    // Where everybody has got another one since, that is to be tried first.
    const isApart = failed.has(place) && failed.get(place) === senders.get(topic)
    const sender = isApart ? openSender() : senderOf(topic)
    sender.underWay++
    const sending: Sending = { isGivenUp: false, broker: undefined }
    const arrived = Effect.sync(() => {
      failed.delete(place)
      if (isApart) adopt(topic, sender)
    })
    return yield* Effect.tryPromise({
      try: () => send(sender, wireTopic, batch, timestampMillis, sending),
      catch: (cause) => KafkaErrors.toPublishError(topic, partition, cause)
    }).pipe(
      Effect.timeoutOrElse({
        duration: sendTimeoutMillis,
        orElse: () =>
          Effect.fail(
            new BrokerUnavailable({
              operation: "publish",
              cause: new Error(`no answer within ${sendTimeoutMillis} ms`)
            })
          )
      }),
      Effect.flatMap((answers) => confirm(wireTopic, batch, answers)),
      Effect.tapError((error) => {
        if (error._tag === "MessageRejected") return arrived
        giveUp(topic, sender, isApart, sending, error)
        failed.set(place, senders.get(topic))
        return outcome(error._tag !== "BrokerUnavailable")
      }),
      Effect.tap(() => Effect.andThen(arrived, outcome(true))),
      // Here, and not where kafkajs says so: a request that is written in the moment of a disconnect never ends there.
      Effect.ensuring(
        Effect.sync(() => {
          sender.underWay--
          // One of its own that nobody took over, however its send ended.
          if (isApart && senders.get(topic) !== sender) retire(sender)
          else closeWhenDone(sender)
        })
      )
    )
  })
  return { publish }
})
