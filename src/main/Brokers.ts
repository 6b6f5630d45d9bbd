/** The broker, and the checks of its topics. */
import { Effect, Layer } from "effect"
import * as Availability from "../brokers/Availability.ts"
import * as EmbeddedBroker from "../brokers/embedded/EmbeddedBroker.ts"
import type { AppConfig } from "../Config.ts"
import * as BrokerHealth from "../http/BrokerHealth.ts"
import * as TopicsHealth from "../http/TopicsHealth.ts"
import { TopicChecks } from "../operations/TopicChecks.ts"
import { topicNames } from "./Names.ts"
import { progress } from "./Progress.ts"

const kafka = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.unwrap(Effect.promise(async () => (await import("./Kafka.ts")).broker(config, brokers)))

/** Apache Kafka where KAFKA_BROKERS names one, else a durable log in Postgres. */
export const broker = (config: AppConfig) =>
  TopicChecks.layer.pipe(
    // Without this line the metric `broker_available` is missing.
    Layer.provideMerge(Availability.layer),
    Layer.provideMerge(config.kafkaBrokers === undefined ? EmbeddedBroker.layer : kafka(config, config.kafkaBrokers)),
    Layer.merge(progress(config))
  )

/** Checks the topics before any part uses them. Without it the service starts on a topic whose settings break a guarantee. */
export const topics = Layer.mergeAll(TopicChecks.layerStart(topicNames), TopicsHealth.layer, BrokerHealth.layer)
