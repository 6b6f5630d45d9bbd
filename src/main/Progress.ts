/** How far consumers have read: also for a command, which joins nothing. */
import { Effect, Layer } from "effect"
import * as EmbeddedProgress from "../brokers/embedded/EmbeddedProgress.ts"
import type { AppConfig } from "../Config.ts"

const kafka = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.unwrap(Effect.promise(async () => (await import("./Kafka.ts")).progress(config, brokers)))

export const progress = (config: AppConfig) =>
  config.kafkaBrokers === undefined ? EmbeddedProgress.layer : kafka(config, config.kafkaBrokers)
