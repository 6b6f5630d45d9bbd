/** Rolling a restored database forward, over Kafka. */
import { Effect, Layer, Schema } from "effect"
import * as RollForward from "../application/rollforward/RollForward.ts"
import { type BusyGroup, rewind } from "../brokers/kafkajs/KafkaRewind.ts"
import { commandSettings } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import { LaneOwnership } from "../outbox/LaneOwnership.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import type { Operator } from "../platform/OperatorAudit.ts"
import * as SlotOwners from "../platform/SlotOwners.ts"
import { settings, topicReader } from "./Kafka.ts"
import { consumed, consumerNames } from "./Names.ts"
import { foundDatabase } from "./Storage.ts"

/** Nothing was changed. */
export class RollForwardRefused extends Schema.TaggedError<RollForwardRefused>()("RollForwardRefused", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** The progress of {@link rollForward}: it waits until these groups are empty, or reads the topic. */
export type Progress = { readonly phase: "waiting"; readonly groups: ReadonlyArray<BusyGroup> } | RollForward.Progress

/** The groups are asked about so often while they have members. */
const untilEmptyMillis = 1_000

/** How long after a session's end Kafka may take to let its member go. */
const graceMillis = 5_000

/**
 * Sets the consumers back to the first record of their topics. A process that was killed counts as a member until its session is over, so this waits
 * for that, and is refused if a group has members then.
 */
const rewound = ({ consumerSessionTimeoutMillis }: AppConfig, tell: (progress: Progress) => Effect.Effect<void>) =>
  Effect.gen(function* () {
    const began = yield* Monotonic.millis
    while (true) {
      const groups: Array<BusyGroup> = []
      for (const topic of new Set(consumed.map((one) => one.topic))) {
        const names = consumed.filter((one) => one.topic === topic).map(({ name }) => name)
        groups.push(...(yield* rewind(names, topic)))
      }
      if (groups.length === 0) return
      if ((yield* Monotonic.millis) - began > consumerSessionTimeoutMillis + graceMillis) {
        const [{ group, members } = { group: "", members: [] }] = groups
        return yield* new RollForwardRefused({
          reason: `consumers run: group ${group} has ${members.length === 0 ? "members" : members.join(", ")}. Stop every process of the service, and try again. Nothing was written`
        })
      }
      yield* tell({ phase: "waiting", groups })
      yield* Effect.sleep(untilEmptyMillis)
    }
  })

/** Rolls the database forward, and sets its consumers back to the first record of their topics. Refused while a dispatcher runs on the database. */
export const rollForward = (
  config: AppConfig,
  operator: Operator | "dry run",
  tell: (progress: Progress) => Effect.Effect<void>
) =>
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
      // First: if this is killed then, the doctor still says that the database is behind.
      if (operator !== "dry run") yield* rewound(config, tell)
      return yield* RollForward.run({ consumers: consumerNames, operator, tell })
    }).pipe(
      Effect.provide(
        Layer.mergeAll(foundDatabase(config), topicReader(config, kafkaBrokers), settings(config, kafkaBrokers))
      )
    )
  }).pipe(
    // Around the layers, too: the database's warnings go to stderr, and not in front of what the command prints.
    Effect.provide(commandSettings(config))
  )
