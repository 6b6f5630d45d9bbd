/** The broker, and the checks of its topics. */
import { Effect, Layer } from "effect"
import * as Availability from "../brokers/Availability.ts"
import * as EmbeddedBroker from "../brokers/embedded/EmbeddedBroker.ts"
import * as EmbeddedProgress from "../brokers/embedded/EmbeddedProgress.ts"
import * as KafkaBroker from "../brokers/kafkajs/KafkaBroker.ts"
import * as KafkaProgress from "../brokers/kafkajs/KafkaProgress.ts"
import type { AppConfig } from "../Config.ts"
import * as KafkaVariables from "../KafkaVariables.ts"
import { ordersTopic } from "../domain/Events.ts"
import * as BrokerHealth from "../http/BrokerHealth.ts"
import * as TopicsHealth from "../http/TopicsHealth.ts"
import { TopicChecks } from "../operations/TopicChecks.ts"

const kafkaSettings = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.succeed(KafkaBroker.KafkaSettings, {
    brokers,
    prefix: config.kafkaPrefix,
    createTopics: config.kafkaCreateTopics,
    replication: config.kafkaReplication,
    sendTimeoutMillis: config.outboxSendTimeoutMillis,
    sessionTimeoutMillis: config.consumerSessionTimeoutMillis,
    clientId: "paid-once",
    access: KafkaVariables.access(config)
  })

/** Says so where others can read along. */
const plainTextWarning = (config: AppConfig) =>
  Layer.effectDiscard(Effect.forEach(KafkaVariables.warnings(config), (sentence) => Effect.logWarning(sentence)))

/** Apache Kafka where KAFKA_BROKERS names one, else a durable log in Postgres. */
export const broker = (config: AppConfig) =>
  TopicChecks.layer.pipe(
    // Without this line the metric `broker_available` is missing.
    Layer.provideMerge(Availability.layer),
    Layer.provideMerge(
      config.kafkaBrokers === undefined
        ? EmbeddedBroker.layer
        : Layer.provide(KafkaBroker.layer, kafkaSettings(config, config.kafkaBrokers)).pipe(
            Layer.merge(plainTextWarning(config))
          )
    ),
    Layer.merge(progress(config))
  )

/** How far consumers have read: also for a command, which joins nothing. */
export const progress = (config: AppConfig) =>
  config.kafkaBrokers === undefined
    ? EmbeddedProgress.layer
    : Layer.provide(KafkaProgress.layer, kafkaSettings(config, config.kafkaBrokers))

/** Which broker that is, for a person. */
export const brokerOf = ({ kafkaBrokers }: AppConfig): string =>
  kafkaBrokers === undefined ? "the embedded one, in the database" : `Kafka at ${kafkaBrokers.join(", ")}`

/** The topics that the service publishes to. */
export const topicNames: ReadonlyArray<string> = [ordersTopic]

/** Checks the topics before any part uses them. Without it the service starts on a topic whose settings break a guarantee. */
export const topics = Layer.mergeAll(TopicChecks.layerStart(topicNames), TopicsHealth.layer, BrokerHealth.layer)
