/** Filling the archive from a topic, over the broker that the service uses. It joins nothing: the service runs beside. */
import { Effect, Layer } from "effect"
import * as EmbeddedTopicReader from "../brokers/embedded/EmbeddedTopicReader.ts"
import { commandSettings, logging } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import { Refill } from "../operations/refill/Refill.ts"
import { foundDatabase } from "./Storage.ts"

const kafka = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.unwrap(Effect.promise(async () => (await import("./Kafka.ts")).topicReader(config, brokers)))

export const refill = (config: AppConfig) =>
  Refill.layer.pipe(
    Layer.provide(config.kafkaBrokers === undefined ? EmbeddedTopicReader.layer : kafka(config, config.kafkaBrokers)),
    Layer.provide(foundDatabase(config)),
    Layer.provide(commandSettings(config)),
    Layer.merge(logging(config))
  )
