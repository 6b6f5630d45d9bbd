/**
 * The broker contract on Apache Kafka 4 through kafkajs 2.2.4. Publishing is in KafkaProducer.ts, consuming in KafkaConsumer.ts, the
 * classification of errors in KafkaErrors.ts, how far groups have read in KafkaProgress.ts. This file has the requests about topics.
 */
import { Clock, Effect, Layer, Schedule, SubscriptionRef } from "effect"
import kafkajs, { type Admin, type PartitionMetadata } from "kafkajs"
import { Broker, BrokerUnavailable, type TopicInfo, TopicUnavailable } from "../Broker.ts"
import { adminRequestTimeoutMillis, adminTimeoutMillis, ask, isNoAnswer, withAdmin } from "./KafkaAdmin.ts"
import { KafkaSettings, makeClients } from "./KafkaClient.ts"
import * as KafkaConsumer from "./KafkaConsumer.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import * as KafkaProducer from "./KafkaProducer.ts"
import * as KafkaTopicConfig from "./KafkaTopicConfig.ts"

export { KafkaConnect, KafkaSettings } from "./KafkaClient.ts"

/** The pause between two looks at a new topic, whose leaders serve within some ten milliseconds. */
const newTopicPollMillis = 50

const make = Effect.gen(function* () {
  const { access = {}, brokers, createTopics, prefix, replication } = yield* KafkaSettings
  const { orDenied, toUnavailable } = KafkaErrors.make(access, yield* Clock.Clock)
  const clients = yield* makeClients
  const available = yield* SubscriptionRef.make(true)
  const outcome = (now: boolean) =>
    Effect.suspend(() =>
      SubscriptionRef.getUnsafe(available) === now ? Effect.void : SubscriptionRef.set(available, now)
    )
  const { publish, rehearse } = yield* KafkaProducer.make(clients, outcome)
  const { consume } = yield* KafkaConsumer.make(clients, outcome)

  const admins = withAdmin(clients)

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
    ).pipe(Effect.mapError(orDenied(topic, { operation: "DescribeConfigs", topic: wireTopic })))
    const { brokers: members } = yield* ask(() => admin.describeCluster())
    return yield* Effect.fromResult(
      KafkaTopicConfig.read({
        topic,
        wireTopic,
        partitions,
        entries: resources[0]?.configEntries ?? [],
        brokers: members.map(({ host, port }) => `${host}:${port}`)
      })
    )
  })

  /**
   * The partitions of a new topic, once the leader of each serves. Brokers announce a new topic before they take over its partitions, and
   * refuse writes until then. An existing topic is not held to this: its healthy partitions are used while one has no leader.
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
    /** The last refusal, for the error of a question that takes too long. */
    let refusal: unknown = new Error(`no answer within ${adminTimeoutMillis} ms`)
    const whileNew = <A>(question: Effect.Effect<A, unknown>) =>
      Effect.retry(
        Effect.tapError(question, (error) => Effect.sync(() => void (refusal = error))),
        {
          schedule: Schedule.spaced(newTopicPollMillis),
          // Another attempt may reach a broker, and a partition of a new topic gets its leader soon.
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
    /** Creates the topic, unless another process is faster. */
    const create = (admin: Admin) =>
      ask(() =>
        admin.createTopics({
          // kafkajs' own wait asks a broker that may not know the topic yet, and fails.
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
      ).pipe(Effect.mapError(orDenied(topic, { operation: "Create", topic: wireTopic })))
    return admins((admin) =>
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
      // Each attempt starts with another bootstrap server.
      Effect.retry({ times: brokers.length - 1, while: isNoAnswer }),
      Effect.timeoutOrElse({ duration: adminTimeoutMillis, orElse: () => Effect.fail(refusal) }),
      Effect.mapError((cause) =>
        cause instanceof TopicUnavailable
          ? cause
          : toUnavailable("ensure topic", topic, { operation: "Describe", topic: wireTopic }, cause)
      ),
      Effect.tapError((error) => outcome(error._tag !== "BrokerUnavailable")),
      Effect.tap(() => outcome(true))
    )
  })

  /**
   * Asks all bootstrap servers concurrently. A refusal is a response; an open connection is none, because kafkajs counts a connection
   * without responses as connected at its second attempt.
   */
  const reach = Effect.fn("KafkaBroker.reach")((topic: string) =>
    Effect.raceAll(
      brokers.map((server) =>
        admins((admin) => ask(() => admin.fetchTopicMetadata({ topics: [prefix + topic] })), server).pipe(
          Effect.asVoid,
          Effect.catchIf(
            (error) => !isNoAnswer(error),
            () => Effect.void
          )
        )
      )
    ).pipe(
      Effect.timeout(adminTimeoutMillis),
      Effect.mapError((cause) => {
        const error = toUnavailable("reach", topic, { operation: "Describe", topic: prefix + topic }, cause)
        return error._tag === "BrokerUnavailable" ? error : new BrokerUnavailable({ operation: "reach", cause })
      }),
      Effect.tapError(() => outcome(false)),
      Effect.tap(() => outcome(true))
    )
  )

  return Broker.of({ name: "kafka", available, ensureTopic, publish, consume, reach, rehearse })
})

/** Kafka as the broker. It connects on the first request, so the service starts while Kafka is down. */
export const layer: Layer.Layer<Broker, never, KafkaSettings> = Layer.effect(Broker, make)
