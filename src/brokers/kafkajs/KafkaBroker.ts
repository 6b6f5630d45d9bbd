/**
 * The broker contract on Apache Kafka 4 through kafkajs 2.2.4. Publishing is in KafkaProducer.ts, consuming in KafkaConsumer.ts,
 * what their errors mean in KafkaErrors.ts; here are the topics.
 */
import { Effect, Layer, Schedule, SubscriptionRef } from "effect"
import kafkajs, { type Admin, type PartitionMetadata } from "kafkajs"
import { Broker, BrokerUnavailable, type TopicInfo, TopicUnavailable } from "../Broker.ts"
import { close, KafkaSettings, makeClients } from "./KafkaClient.ts"
import * as KafkaConsumer from "./KafkaConsumer.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import * as KafkaProducer from "./KafkaProducer.ts"
import * as KafkaTopicConfig from "./KafkaTopicConfig.ts"

export { KafkaConnect, KafkaSettings } from "./KafkaClient.ts"

/** To find a topic out takes milliseconds, to make one some hundred; what takes longer than this hangs. */
const adminTimeoutMillis = 10_000

/** One request of it. */
const adminRequestTimeoutMillis = 3_000

/** A new topic is known to all brokers and has its leaders within some ten milliseconds. */
const newTopicPollMillis = 50

/** Nothing is under way any more when an admin is closed. */
const closeGraceMillis = 1_000

const make = Effect.gen(function* () {
  const { brokers, createTopics, prefix, replication } = yield* KafkaSettings
  const clients = yield* makeClients
  const available = yield* SubscriptionRef.make(true)
  const outcome = (now: boolean) =>
    Effect.suspend(() =>
      SubscriptionRef.getUnsafe(available) === now ? Effect.void : SubscriptionRef.set(available, now)
    )
  const { publish } = yield* KafkaProducer.make(clients, outcome)
  const { consume } = yield* KafkaConsumer.make(clients, outcome)

  /** A connection for a question or two: they are asked so rarely that one kept open would be one more thing that breaks. */
  const withAdmin = <A>(use: (admin: Admin) => Effect.Effect<A, unknown>, server?: string): Effect.Effect<A, unknown> =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const client = clients.open({
          requestTimeoutMillis: adminRequestTimeoutMillis,
          retries: 0,
          isPartByPart: true,
          ...(server === undefined ? {} : { server })
        })
        return { client, admin: client.kafka.admin({ retry: { retries: 0 } }) }
      }),
      ({ admin }) =>
        Effect.andThen(Effect.tryPromise({ try: () => admin.connect(), catch: (cause) => cause }), use(admin)),
      ({ admin, client }) => close(client, () => admin.disconnect(), closeGraceMillis)
    )
  const isNoAnswer = (error: unknown) =>
    !(error instanceof TopicUnavailable) && KafkaErrors.protocolErrorOf(error) === undefined
  const ask = <A>(question: () => Promise<A>) => Effect.tryPromise({ try: question, catch: (cause) => cause })

  const partitionsOf = (admin: Admin, wireTopic: string) =>
    Effect.flatMap(
      ask(() => admin.fetchTopicMetadata({ topics: [wireTopic] })),
      ({ topics }) => {
        const partitions = topics.find(({ name }) => name === wireTopic)?.partitions ?? []
        return partitions.length > 0
          ? Effect.succeed(partitions)
          : Effect.fail(new Error(`no partitions of ${wireTopic} are known`))
      }
    )

  const describe = Effect.fnUntraced(function* (
    admin: Admin,
    topic: string,
    wireTopic: string,
    partitions: ReadonlyArray<PartitionMetadata>
  ) {
    const { resources } = yield* ask(() =>
      admin.describeConfigs({
        includeSynonyms: false,
        resources: [
          { type: kafkajs.ConfigResourceTypes.TOPIC, name: wireTopic, configNames: [...KafkaTopicConfig.names] }
        ]
      })
    )
    return yield* Effect.fromResult(
      KafkaTopicConfig.read({ topic, wireTopic, partitions, entries: resources[0]?.configEntries ?? [] })
    )
  })

  /**
   * Those of a new topic, as soon as the leader of each serves. Brokers spread the word of a new topic faster than they take its partitions over,
   * and refuse for a moment to write to what they say is theirs. Of one that is there already some leader may be away, which is no reason not to
   * write to the others.
   */
  const ledPartitionsOf = (admin: Admin, wireTopic: string) =>
    partitionsOf(admin, wireTopic).pipe(
      Effect.filterOrFail(
        (partitions) => partitions.every(({ leader }) => leader >= 0),
        () => new Error(`a partition of ${wireTopic} has no leader yet`)
      ),
      Effect.tap(() => ask(() => admin.fetchTopicOffsets(wireTopic)))
    )

  const ensureTopic = Effect.fn("KafkaBroker.ensureTopic")((
    topic: string,
    numPartitions: number
  ): Effect.Effect<TopicInfo, BrokerUnavailable | TopicUnavailable> => {
    const wireTopic = prefix + topic
    /** What a new topic answers for some ten milliseconds; kept for the error, should it go on. */
    let refusal: unknown = new Error(`no answer within ${adminTimeoutMillis} ms`)
    const whileNew = <A>(question: Effect.Effect<A, unknown>) =>
      Effect.retry(
        Effect.tapError(question, (error) => Effect.sync(() => void (refusal = error))),
        {
          schedule: Schedule.spaced(newTopicPollMillis),
          // Where no broker has answered the next try may be heard; and a partition that has no leader yet will have one.
          while: (error) =>
            isNoAnswer(error) ||
            KafkaErrors.isProtocolError(
              error,
              "UNKNOWN_TOPIC_OR_PARTITION",
              "LEADER_NOT_AVAILABLE",
              "NOT_LEADER_FOR_PARTITION"
            )
        }
      )
    /** Makes the topic, unless another process is faster. */
    const create = (admin: Admin) =>
      ask(() =>
        admin.createTopics({
          // kafkajs' own wait asks one broker that may not know of the topic yet, and fails.
          waitForLeaders: false,
          timeout: adminRequestTimeoutMillis,
          topics: [
            {
              topic: wireTopic,
              numPartitions,
              replicationFactor: replication,
              configEntries: KafkaTopicConfig.entriesOfNew(replication)
            }
          ]
        })
      )
    return withAdmin((admin) =>
      Effect.gen(function* () {
        const partitions = yield* partitionsOf(admin, wireTopic).pipe(
          Effect.catchIf(
            (error) => KafkaErrors.isProtocolError(error, "UNKNOWN_TOPIC_OR_PARTITION"),
            () =>
              createTopics
                ? Effect.andThen(create(admin), whileNew(ledPartitionsOf(admin, wireTopic)))
                : Effect.fail(
                    new TopicUnavailable({
                      topic,
                      reason: `${wireTopic} does not exist, and KAFKA_CREATE_TOPICS is off`
                    })
                  )
          )
        )
        return yield* whileNew(describe(admin, topic, wireTopic, partitions))
      })
    ).pipe(
      // The next one begins with another server.
      Effect.retry({ times: brokers.length - 1, while: isNoAnswer }),
      Effect.timeoutOrElse({ duration: adminTimeoutMillis, orElse: () => Effect.fail(refusal) }),
      Effect.mapError((cause) =>
        cause instanceof TopicUnavailable ? cause : KafkaErrors.toUnavailable("ensure topic", topic, cause)
      ),
      Effect.tapError((error) => outcome(error._tag !== "BrokerUnavailable")),
      Effect.tap(() => outcome(true))
    )
  })

  const lag = Effect.fn("KafkaBroker.lag")((group: string, topic: string) =>
    withAdmin((admin) =>
      Effect.gen(function* () {
        const ends = yield* ask(() => admin.fetchTopicOffsets(prefix + topic))
        const places = yield* ask(() => admin.fetchOffsets({ groupId: prefix + group, topics: [prefix + topic] }))
        const committed = new Map(
          places.flatMap(({ partitions }) => partitions).map(({ offset, partition }) => [partition, BigInt(offset)])
        )
        return ends.reduce((sum, { high, low, partition }) => {
          // -1: the group has not committed there, and starts at the beginning; the topic may have dropped what it has not read.
          const place = committed.get(partition) ?? -1n
          const from = place < BigInt(low) ? BigInt(low) : place
          return sum + Math.max(0, Number(BigInt(high) - from))
        }, 0)
      })
    ).pipe(
      Effect.timeout(adminTimeoutMillis),
      Effect.mapError((cause) => KafkaErrors.toUnavailable("lag", topic, cause))
    )
  )

  /**
   * All are asked side by side, and a refusal is an answer. (To connect is none: kafkajs takes a connection that swallows everything for one at
   * its second try.)
   */
  const reach = Effect.fn("KafkaBroker.reach")((topic: string) =>
    Effect.raceAll(
      brokers.map((server) =>
        withAdmin((admin) => ask(() => admin.fetchTopicMetadata({ topics: [prefix + topic] })), server).pipe(
          Effect.asVoid,
          Effect.catchIf(
            (error) => !isNoAnswer(error),
            () => Effect.void
          )
        )
      )
    ).pipe(
      Effect.timeout(adminTimeoutMillis),
      Effect.mapError((cause) => new BrokerUnavailable({ operation: "reach", cause })),
      Effect.tapError(() => outcome(false)),
      Effect.tap(() => outcome(true))
    )
  )

  return Broker.of({ name: "kafka", available, ensureTopic, publish, consume, reach, lag })
})

/** Kafka as the broker. Connects when something is asked for: a Kafka that is down does not keep the service from starting. */
export const layer: Layer.Layer<Broker, never, KafkaSettings> = Layer.effect(Broker, make)
