/** Whether the database is behind its topic: for the doctor, and before a repair of the books. */
import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import * as BehindTopic from "../application/doctor/BehindTopic.ts"
import { TopicHistory } from "../application/reconciliation/TopicHistory.ts"
import type { AppConfig } from "../Config.ts"
import type { Check } from "../operations/doctor/Check.ts"
import { consumerNames } from "./Names.ts"

/** The client of Kafka is loaded by who looks. */
export const check = (config: AppConfig, brokers: ReadonlyArray<string>): Check<SqlClient.SqlClient> => {
  const kafka = Layer.unwrap(Effect.promise(async () => (await import("./Kafka.ts")).topicReader(config, brokers)))
  const behind = BehindTopic.check(consumerNames)
  return { ...behind, run: Effect.provide(behind.run, kafka) }
}

/** See {@link TopicHistory}. */
export const layer = (config: AppConfig): Layer.Layer<TopicHistory, never, SqlClient.SqlClient> =>
  config.kafkaBrokers === undefined
    ? TopicHistory.layerEmbedded
    : TopicHistory.layerChecked(check(config, config.kafkaBrokers))
