/**
 * Publishing to Kafka: neither idempotent nor retrying (README.md). An acknowledgement means that the batch is stored, and an unknown
 * outcome is reported as unknown. The dispatcher retries.
 *
 * All partitions of a topic share a client until a send fails. The next attempt of a failed partition uses a new client of its own, with
 * new connections and new metadata. The first one that succeeds replaces the topic's shared client. Until then the healthy partitions
 * keep theirs, so a silent broker or a leader that has moved affects only the partitions that it leads. There is one exception: a batch that kafkajs
 * sends waits for the topic's metadata, from any broker, if kafkajs has last asked for it five minutes ago.
 */
import { Clock, Effect, Exit, FiberSet } from "effect"
import type { Producer, RecordMetadata } from "kafkajs"
import * as SharedTimeout from "../../platform/SharedTimeout.ts"
import { type Batch, BrokerUnavailable, MessageRejected, type PublishError, TopicUnavailable } from "../Broker.ts"
import { type Client, type Clients, close, KafkaSettings } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import { type KafkajsBroker, encodedBatch, requestHeadBytes, type Sending, sendTo } from "./patches/ProduceRequests.ts"
import * as RecordBatch from "./RecordBatch.ts"

/**
 * A client and its producer, for one topic.
 *
 * Not shared between topics: kafkajs requests the metadata of all topics of a producer at once, and a deleted topic fails the others.
 */
interface Sender {
  readonly client: Client
  readonly producer: Producer
  readonly connected: Promise<void>
  isConnected: boolean
  /** The broker that took the last batch of each partition. */
  readonly leaders: Map<number, KafkajsBroker>
  /** Sends that have not ended. */
  inFlight: number
  /** Gets no further batch, and is closed when its sends have ended. */
  retired: boolean
}

/** Disconnecting waits for the sends in flight, which have their own timeout. This bounds a disconnect that hangs. */
const closeGraceMillis = 2_000

/** Below `socket.request.max.bytes`, 104,857,600 by default. A broker closes the connection of a larger request, like an outage. */
const maxRequestBytes = 100_000_000

/** Publishes batches while the scope is open. `outcome` is told after each exchange whether the broker took part in it. */
export const make = Effect.fnUntraced(function* (
  clients: Clients,
  outcome: (available: boolean) => Effect.Effect<void>
) {
  const { access = {}, prefix, sendTimeoutMillis } = yield* KafkaSettings
  const { toPublishError } = KafkaErrors.make(access, yield* Clock.Clock)
  /** The shared sender of each topic, for all partitions but the failed ones. */
  const senders = new Map<string, Sender>()
  /** All open senders, including those of a single failed partition. */
  const open = new Set<Sender>()
  /** Partitions whose last send failed, by topic and number, with the topic's shared sender at that moment. */
  const failed = new Map<string, Sender | undefined>()
  const withinLimit = yield* SharedTimeout.make(sendTimeoutMillis)
  yield* Effect.addFinalizer(() =>
    Effect.forEach(open, ({ client, producer }) => close(client, () => producer.disconnect(), closeGraceMillis), {
      concurrency: "unbounded",
      discard: true
    })
  )
  const runFork = yield* FiberSet.makeRuntime<never, void, never>()

  const openSender = (): Sender => {
    const client = clients.open({ requestTimeoutMillis: sendTimeoutMillis, retries: 0, acceptsPartialMetadata: true })
    const producer = client.kafka.producer({
      idempotent: false,
      allowAutoTopicCreation: false,
      retry: { retries: 0 },
      // Every message names its partition. A partitioner also silences kafkajs' warning about its default one.
      createPartitioner:
        () =>
        ({ message }) =>
          message.partition!
    })
    const connected = producer.connect()
    const sender: Sender = {
      client,
      producer,
      connected,
      isConnected: false,
      leaders: new Map(),
      inFlight: 0,
      retired: false
    }
    // Handles the rejection also where no send waits for the connection.
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

  const retire = (sender: Sender) => {
    sender.retired = true
    closeWhenDone(sender)
  }
  const closeWhenDone = (sender: Sender) => {
    const { client, inFlight, producer, retired } = sender
    if (!retired || inFlight > 0 || !open.delete(sender)) return
    runFork(close(client, () => producer.disconnect(), closeGraceMillis))
  }

  /** Makes the sender that reached a failed partition the topic's shared one: its metadata is the newest. */
  const adopt = (topic: string, sender: Sender) => {
    const before = senders.get(topic)
    senders.set(topic, sender)
    if (before !== undefined) retire(before)
  }

  /**
   * After a send that failed, or whose outcome is unknown. The batch must not be written later, and a connection without responses must
   * not keep the sends behind it waiting.
   */
  const giveUp = (topic: string, sender: Sender, isApart: boolean, sending: Sending, error: PublishError) => {
    sending.isGivenUp = true
    if (isApart || !sender.isConnected) {
      if (senders.get(topic) === sender) senders.delete(topic)
      sender.client.cut()
      return retire(sender)
    }
    const isAnswer = error._tag !== "BrokerUnavailable" || KafkaErrors.protocolErrorOf(error.cause) !== undefined
    if (!isAnswer && sending.broker !== undefined) sender.client.reset(sending.broker.brokerAddress)
  }

  /**
   * kafkajs sends a partition's first batch to its leader, and the next one after a connection has ended or its user has to be proved again. All others
   * go where the last one went.
   */
  const send = async (
    sender: Sender,
    topic: string,
    { partition, records }: Batch,
    timestampMillis: number,
    sending: Sending
  ): Promise<Array<RecordMetadata>> => {
    await sender.connected
    const roomAndBatch = RecordBatch.encode(records, timestampMillis, requestHeadBytes(topic))
    // How long the broker waits for its replicas. Its error must arrive before this send gives up.
    const options = { topic, acks: -1, timeout: Math.ceil(sendTimeoutMillis / 2) }
    const leader = sender.leaders.get(partition)
    if (leader?.isConnected() !== true) {
      return await sender.producer.send({ ...options, messages: [encodedBatch(partition, roomAndBatch, sending)] })
    }
    try {
      return await sendTo(leader, { ...options, partition, roomAndBatch, sending })
    } catch (error) {
      // This broker has taken a batch, so it demands neither TLS nor a user, as KafkaAccess.ts would explain an error of this name.
      throw error instanceof Error && error.name === "KafkaJSConnectionClosedError"
        ? new Error(`${error.message}: ${leader.brokerAddress}`)
        : error
    }
  }

  /** A response counts only when it names exactly the partition of the batch with error 0. kafkajs accepts others as a success. */
  const confirm = (
    wireTopic: string,
    { partition, topic }: Batch,
    answers: ReadonlyArray<RecordMetadata>
  ): Effect.Effect<{ readonly baseOffset: bigint }, PublishError> => {
    const [answer, ...others] = answers
    if (answer === undefined) {
      // kafkajs silently drops messages for partitions that are missing in the metadata: nothing was sent.
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
    const key = `${topic}\0${partition}`
    // A shared sender that was replaced since the failure is tried first.
    const isApart = failed.has(key) && failed.get(key) === senders.get(topic)
    const sender = isApart ? openSender() : senderOf(topic)
    sender.inFlight++
    const sending: Sending = { isGivenUp: false, broker: undefined }
    const arrived = () => {
      failed.delete(key)
      if (sending.broker !== undefined) sender.leaders.set(partition, sending.broker)
      if (isApart) adopt(topic, sender)
    }
    return yield* Effect.tryPromise({
      try: () => withinLimit(send(sender, wireTopic, batch, timestampMillis, sending)),
      catch: (cause) => toPublishError(topic, wireTopic, partition, cause)
    }).pipe(
      Effect.flatMap((answers) => confirm(wireTopic, batch, answers)),
      Effect.tapError((error) => {
        if (error._tag === "MessageRejected") return Effect.sync(arrived)
        giveUp(topic, sender, isApart, sending, error)
        failed.set(key, senders.get(topic))
        return outcome(error._tag !== "BrokerUnavailable")
      }),
      Effect.tap(() => {
        arrived()
        return outcome(true)
      }),
      // Not when kafkajs' promise settles: a request that is written during a disconnect never settles.
      Effect.ensuring(
        Effect.sync(() => {
          sender.inFlight--
          // A sender of its own that did not become the shared one.
          if (isApart && senders.get(topic) !== sender) retire(sender)
          else closeWhenDone(sender)
        })
      )
    )
  })

  /** A send without messages: kafkajs connects and asks for the topic's metadata, and then has nothing to request. */
  const rehearse = Effect.fnUntraced(function* ({ records, topic }: Batch) {
    const sender = senderOf(topic)
    sender.inFlight++
    yield* Effect.tryPromise({
      try: async () => {
        await sender.connected
        await sender.producer.send({ topic: prefix + topic, acks: -1, messages: [] })
        RecordBatch.encode(records, 0, requestHeadBytes(topic))
      },
      catch: (cause) => new BrokerUnavailable({ operation: "rehearse", cause })
    }).pipe(
      Effect.onExit((exit) =>
        Effect.sync(() => {
          sender.inFlight--
          if (Exit.isSuccess(exit)) return closeWhenDone(sender)
          // The first send must not meet a client that could not connect, or still tries to.
          if (senders.get(topic) === sender) senders.delete(topic)
          sender.client.cut()
          retire(sender)
        })
      )
    )
  })
  return { publish, rehearse }
})
