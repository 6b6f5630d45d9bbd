/** Apache Kafka. Brokers.ts imports this file where KAFKA_BROKERS is set: without it a process loads no client. */
import { Effect, Layer } from "effect"
import { Broker } from "../brokers/Broker.ts"
import * as KafkaBroker from "../brokers/kafkajs/KafkaBroker.ts"
import * as KafkaProgress from "../brokers/kafkajs/KafkaProgress.ts"
import * as KafkaTopicReader from "../brokers/kafkajs/KafkaTopicReader.ts"
import type { AppConfig } from "../Config.ts"
import * as KafkaVariables from "../KafkaVariables.ts"
import { TopicDescriptions } from "../operations/doctor/TopicChecks.ts"

export const settings = (config: AppConfig, brokers: ReadonlyArray<string>) =>
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

export const broker = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.provide(KafkaBroker.layer, settings(config, brokers)).pipe(Layer.merge(plainTextWarning(config)))

/** Topics as Kafka describes them. None is made, whatever KAFKA_CREATE_TOPICS says. */
export const descriptions = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.effect(
    TopicDescriptions,
    Broker.useSync(({ ensureTopic }) => TopicDescriptions.of({ describe: (topic) => ensureTopic(topic, 1) }))
  ).pipe(Layer.provide(KafkaBroker.layer), Layer.provide(settings({ ...config, kafkaCreateTopics: false }, brokers)))

export const progress = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.provide(KafkaProgress.layer, settings(config, brokers))

/** Reads a topic for a command. */
export const topicReader = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.provide(KafkaTopicReader.layer, settings(config, brokers)).pipe(Layer.merge(plainTextWarning(config)))
