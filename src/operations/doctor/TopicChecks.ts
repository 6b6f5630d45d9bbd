/** The doctor's checks of topics: their settings, and the time of an answer. Nothing is made or noted. */
import { Context, Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { BrokerUnavailable, TopicInfo, TopicUnavailable } from "../../brokers/Broker.ts"
import { OutboxSettings } from "../../outbox/Outbox.ts"
import { QueueSettings } from "../../outbox/Queue.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Retention from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { examine, examineCount, isOfOneBroker } from "../TopicFindings.ts"
import { type Check, type Finding, told } from "./Check.ts"

/** Describes a topic, and never makes one. */
export class TopicDescriptions extends Context.Service<
  TopicDescriptions,
  {
    readonly describe: (topic: string) => Effect.Effect<TopicInfo, BrokerUnavailable | TopicUnavailable>
  }
>()("paid-once/operations/doctor/TopicDescriptions") {}

type Needs = TopicDescriptions | SqlClient.SqlClient

const group = "topics"

/** A description is three requests and a connection. A send has a part of that, and is given up after OUTBOX_SEND_TIMEOUT_MILLIS. */
const slowAnswerMillis = 2_000

const notedRow = Rows.first(Schema.Struct({ partitions: Schema.Int }))

const away = (error: BrokerUnavailable | TopicUnavailable): Finding => ({
  problem: error.message,
  fix:
    error._tag === "BrokerUnavailable"
      ? "Bring the broker up, or mend its address in KAFKA_BROKERS; orders are taken meanwhile, and events wait"
      : "Start the service once with KAFKA_CREATE_TOPICS on, or make the topic and grant this user's rights (docs/hardening.md)",
  command: error._tag === "BrokerUnavailable" ? "npm run paid-once -- outbox status" : null
})

const settingsOf = (topic: string): Check<Needs> => ({
  group,
  name: `topic-${topic}`,
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { describe } = yield* TopicDescriptions
    const { maxEventBytes } = yield* OutboxSettings
    const { batchBytes } = yield* QueueSettings
    const own = yield* Retention.RetentionSettings
    const inboxDays = (yield* Retention.noted).get("processed_events")?.days ?? own.inboxDays
    const began = yield* Monotonic.millis
    const result = yield* Effect.result(describe(topic))
    const took = (yield* Monotonic.millis) - began
    if (result._tag === "Failure") return told("", [away(result.failure)])
    const info = result.success
    const noted = yield* notedRow(sql`SELECT partitions FROM outbox_topics WHERE topic = ${topic}`)
    const all = [...examine(info, { maxEventBytes, batchBytes, inboxDays }), ...examineCount(info, noted?.partitions)]
    const findings = all.filter((finding) => !isOfOneBroker(info, finding))
    const note = findings.length === all.length ? "" : "; it has one copy, for its cluster is one broker"
    return told(`${info.partitions} partitions; the broker described it in ${took.toFixed(0)} ms${note}`, [
      ...findings.map(({ sentence }) => ({
        problem: `topic ${topic}: ${sentence}`,
        fix: "Change the setting as the sentence says; publishing goes on by itself",
        command: null
      })),
      ...(took <= slowAnswerMillis
        ? []
        : [
            {
              problem: `the broker took ${(took / 1_000).toFixed(1)} s to describe the topic ${topic}`,
              fix: "Look at the network and at the brokers' load: a send that takes longer than OUTBOX_SEND_TIMEOUT_MILLIS is sent again",
              command: null
            }
          ])
    ])
  })
})

export const checks = (topics: ReadonlyArray<string>): ReadonlyArray<Check<Needs>> => topics.map(settingsOf)
