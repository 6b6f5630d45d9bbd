/** Rolling a restored database forward, over Kafka. */
import { Effect, Layer, Schema } from "effect"
import * as RollForward from "../application/rollforward/RollForward.ts"
import { rewind } from "../brokers/kafkajs/KafkaRewind.ts"
import { commandSettings } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import { LaneOwnership } from "../outbox/LaneOwnership.ts"
import type { Operator } from "../platform/OperatorAudit.ts"
import * as SlotOwners from "../platform/SlotOwners.ts"
import { settings, topicReader } from "./Kafka.ts"
import { consumed } from "./Names.ts"
import { foundDatabase } from "./Storage.ts"

/** Nothing was changed. */
export class RollForwardRefused extends Schema.TaggedError<RollForwardRefused>()("RollForwardRefused", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** Rolls the database forward, and sets its consumers back to the first record of their topics. Refused while a dispatcher runs on the database. */
export const rollForward = (config: AppConfig, operator: Operator | "dry run") =>
  Effect.gen(function* () {
    const { kafkaBrokers } = config
    if (kafkaBrokers === undefined) {
      return yield* new RollForwardRefused({
        reason: "the embedded broker is in the database, and was restored with it: KAFKA_BROKERS names no other"
      })
    }
    return yield* Effect.gen(function* () {
      const running = yield* SlotOwners.members(LaneOwnership.group)
      if (running.length > 0) {
        return yield* new RollForwardRefused({
          reason: `stop the service first: ${running.join(", ")} runs on this database`
        })
      }
      // First: Kafka refuses it while a consumer runs, also one of another database. Then nothing is written.
      if (operator !== "dry run") {
        for (const topic of new Set(consumed.map((one) => one.topic))) {
          yield* rewind(
            consumed.filter((one) => one.topic === topic).map((one) => one.name),
            topic
          )
        }
      }
      return yield* RollForward.run(operator)
    }).pipe(
      Effect.provide(
        Layer.mergeAll(foundDatabase(config), topicReader(config, kafkaBrokers), settings(config, kafkaBrokers))
      )
    )
  }).pipe(
    // Around the layers, too: the database's warnings go to stderr, and not in front of what the command prints.
    Effect.provide(commandSettings(config))
  )
