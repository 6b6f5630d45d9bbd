/**
 * Whether a topic is such that what the outbox and the inbox promise can hold: looked at when the service starts, and from time to time.
 *
 * What breaks a promise refuses the start, in a sentence for the operator. A broker that is away then is no refusal: orders are taken, and
 * the topic is looked at when it comes. What is then, or at any later look, found to break the order or to lose events makes the topic
 * wait, with the sentence as its reason, until a look finds it mended; what is only unsafe is said by health and by the log.
 */
import type { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Ref, Result, Schema } from "effect"
import {
  Broker,
  type BrokerUnavailable,
  type TopicInfo,
  TopicSettings,
  type TopicUnavailable
} from "../brokers/Broker.ts"
import { laneCount } from "../outbox/Lane.ts"
import { OutboxSettings } from "../outbox/Outbox.ts"
import { QueueSettings } from "../outbox/OutboxQueue.ts"
import { RetentionSettings } from "../platform/Retention.ts"
import * as Supervised from "../platform/Supervised.ts"
import { PartitionCounts } from "./PartitionCounts.ts"

/**
 * What is wrong with a topic.
 *
 * - `stops`: to publish to it would break the order, lose events, or can't succeed. Refuses a start; later, the topic waits.
 * - `unsafe`: a promise can break. Refuses a start; later, health says so.
 * - `oversize`: events may be written that it will not take: each would be held and end as a dead letter. Health and the log say so; neither
 *   a refused start nor a topic that waits would do the other events any good.
 * - `weak`: everything holds, less safely or less well than it could. A warning in the log.
 */
export interface Finding {
  readonly kind: "stops" | "unsafe" | "oversize" | "weak"
  /** A sentence without the topic's name: the setting, its value, what is needed, how to set it. */
  readonly sentence: string
}

/** What is known of a topic's fitness. `unavailable` says why it could not be looked at though the broker answered. */
export interface TopicReport {
  readonly topic: string
  readonly findings: ReadonlyArray<Finding>
  readonly unavailable?: string
}

/** What a topic is checked against. */
export interface Needs {
  readonly maxEventBytes: number
  readonly batchBytes: number
  /** 0: for ever. */
  readonly inboxDays: number
}

/** The start is refused: a topic's settings break what the service promises. */
export class TopicUnfit extends Schema.TaggedError<TopicUnfit>()("TopicUnfit", {
  topic: Schema.String,
  sentences: Schema.Array(Schema.String)
}) {
  override get message() {
    return this.sentences.map((sentence) => `topic ${this.topic}: ${sentence}`).join("\n")
  }
}

const stops = (findings: ReadonlyArray<Finding>) => findings.some(({ kind }) => kind === "stops")

const dayMillis = 86_400_000

const days = (millis: number) => {
  const count = Math.round((millis / dayMillis) * 10) / 10
  return millis === Infinity ? "for ever" : `${count} ${count === 1 ? "day" : "days"}`
}

const divisors = Array.from({ length: laneCount }, (_, index) => index + 1).filter((count) => laneCount % count === 0)

/** What is to be said about the topic's settings. */
export const examine = (info: TopicInfo, { batchBytes, inboxDays, maxEventBytes }: Needs): ReadonlyArray<Finding> => {
  const { maxMessageBytes, replication, retention } = info
  const findings: Array<Finding> = []
  const find = (kind: Finding["kind"], sentence: string) => findings.push({ kind, sentence })
  const name = info.wireName ?? info.topic
  const set = (config: string) =>
    `kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name ${name} --add-config ${config}`
  // The embedded broker has nothing to set: there, only our own side can be changed.
  const orSet = (config: string) => (replication === undefined ? "" : `, or ${set(config)}`)

  if (retention?.compacts === true) {
    find(
      "stops",
      "cleanup.policy is to compact: Kafka would keep an aggregate's newest event only, and consumers would miss the others; " +
        set("cleanup.policy=delete")
    )
  }
  if (replication !== undefined && replication.minInSync > replication.copies) {
    find(
      "stops",
      `min.insync.replicas is ${replication.minInSync}, and it has ${replication.copies} ${replication.copies === 1 ? "copy" : "copies"}: no send can ever be acknowledged; ` +
        `add copies, or ${set(`min.insync.replicas=${Math.max(1, replication.copies - 1)}`)}`
    )
  }
  if (maxMessageBytes < maxEventBytes) {
    find(
      "oversize",
      `max.message.bytes is ${maxMessageBytes}, and an event may take ${maxEventBytes} bytes (OUTBOX_MAX_EVENT_BYTES): what is larger ` +
        `would be taken and never published; set OUTBOX_MAX_EVENT_BYTES to at most ${maxMessageBytes}` +
        orSet(`max.message.bytes=${Math.max(maxEventBytes, 1_048_588)}`)
    )
  } else if (maxMessageBytes < batchBytes) {
    find(
      "weak",
      `max.message.bytes is ${maxMessageBytes}, below a batch's ${batchBytes} bytes: large batches will be refused first and then sent ` +
        `in halves; set OUTBOX_BATCH_BYTES to at most ${maxMessageBytes}`
    )
  }
  if (retention !== undefined) {
    const remembered = inboxDays === 0 ? Infinity : inboxDays * dayMillis
    const longest = retention.millis + retention.segmentMillis
    const known = `an event is known as a duplicate for ${days(remembered)} only (INBOX_RETENTION_DAYS)`
    if (retention.millis > remembered) {
      const enough = longest === Infinity ? 0 : Math.ceil(longest / dayMillis)
      find(
        "unsafe",
        `it keeps records ${retention.millis === Infinity ? "for ever" : `for ${days(retention.millis)} (retention.ms)`}, and ${known}: ` +
          `a consumer that starts over would apply events twice; set INBOX_RETENTION_DAYS to ${enough}${enough === 0 ? ", which keeps them" : " or more"}` +
          orSet(`retention.ms=${Math.max(dayMillis, remembered - dayMillis)}`)
      )
    } else if (longest > remembered) {
      find(
        "weak",
        `a record goes with its segment, so it may be there for ${days(longest)} (retention.ms and segment.ms), and ${known}: ` +
          `a consumer that starts over could apply an event twice; set INBOX_RETENTION_DAYS to ${Math.ceil(longest / dayMillis)}` +
          orSet(`segment.ms=${dayMillis}`)
      )
    }
    if (retention.millis < dayMillis) {
      find(
        "weak",
        `retention.ms is ${retention.millis}: a consumer that is away for longer misses events; ${set(`retention.ms=${7 * dayMillis}`)}`
      )
    }
  }
  if (replication !== undefined) {
    const { copies, minInSync, uncleanElection } = replication
    if (copies === 1) {
      find(
        "weak",
        "it has one copy: what was acknowledged is lost with its broker's disk; give it three (KAFKA_REPLICATION)"
      )
    } else if (minInSync === 1) {
      find(
        "weak",
        `min.insync.replicas is 1: an acknowledgement may be one broker's word only; ${set(`min.insync.replicas=${Math.max(2, copies - 1)}`)}`
      )
    } else if (minInSync === copies) {
      find(
        "weak",
        `min.insync.replicas is ${minInSync} of ${copies} copies: nothing can be published while one broker is away; ` +
          "give it one copy more than have to acknowledge"
      )
    }
    if (uncleanElection && copies > 1) {
      find(
        "weak",
        "unclean.leader.election.enable is true: a copy that lags behind may take over and drop what was acknowledged; " +
          set("unclean.leader.election.enable=false")
      )
    }
  }
  return findings
}

/**
 * What is to be said of the number of its partitions, where its lanes are spread over `noted` of them: `undefined` where nothing was published yet.
 *
 * More of them are no danger, as they are not used. With fewer, some lanes have nowhere to go, and to put them elsewhere is only right once the rest
 * has been read.
 */
export const examineCount = ({ partitions, topic }: TopicInfo, noted: number | undefined): ReadonlyArray<Finding> => {
  if (noted === undefined) {
    if (laneCount % partitions === 0) return []
    const next = divisors.find((count) => count > partitions) ?? laneCount
    const sentence =
      `it has ${partitions} partitions: ${laneCount} lanes need a count that divides ${laneCount} (${divisors.join(", ")}); ` +
      `make the topic anew, or, once its consumers have read all of it, give it ${next}`
    return [{ kind: "stops", sentence }]
  }
  if (partitions === noted) return []
  const usable = divisors.findLast((count) => count <= partitions) ?? 1
  const how =
    `stop the dispatchers, let consumers read what is there, then ` +
    `UPDATE outbox_topics SET partitions = ${usable} WHERE topic = '${topic}' (README, "More partitions")`
  if (partitions > noted) {
    const sentence =
      `it has ${partitions} partitions, and events go to the first ${noted}, as before it grew: aggregates that change their partition ` +
      `lose their order; ` +
      (usable > noted
        ? `to use ${usable === partitions ? "them all" : `${usable} of them, as many as divide ${laneCount}`}, ${how}`
        : `no more of them can be used, for their number has to divide ${laneCount}`)
    return [{ kind: "weak", sentence }]
  }
  const sentence = `it has ${partitions} partitions, and its lanes are spread over ${noted}: make it anew with ${noted}, or ${how}`
  return [{ kind: "stops", sentence }]
}

export class TopicChecks extends Context.Service<
  TopicChecks,
  {
    /**
     * Looks at the topic, making it if it is missing and the broker is set to. What is found anew goes to the log. `partitions` is how
     * many of them its lanes are spread over.
     */
    readonly inspect: (topic: string) => Effect.Effect<
      {
        readonly info: TopicInfo
        readonly partitions: number
        readonly findings: ReadonlyArray<Finding>
      },
      BrokerUnavailable | TopicUnavailable
    >
    /** The topic's `partitions`, where nothing that stops it was found at the last look; asks nobody. */
    readonly lastFit: (topic: string) => Effect.Effect<number | undefined>
    /** The last look is no longer to be relied on. */
    readonly forget: (topic: string) => Effect.Effect<void>
    /** What was found when each topic was last looked at. */
    readonly reports: Effect.Effect<ReadonlyArray<TopicReport>>
  }
>()("paid-once/operations/TopicChecks") {
  static readonly layerNoDeps: Layer.Layer<TopicChecks, never, Broker | PartitionCounts> = Layer.effect(
    TopicChecks,
    Effect.gen(function* () {
      const broker = yield* Broker
      const counts = yield* PartitionCounts
      const { partitions: wanted } = yield* TopicSettings
      const { maxEventBytes } = yield* OutboxSettings
      const { batchBytes } = yield* QueueSettings
      const { inboxDays } = yield* RetentionSettings
      const reports = yield* Ref.make<ReadonlyMap<string, TopicReport>>(new Map())
      // Read for each batch, so a plain map.
      const fit = new Map<string, number>()
      const forget = (topic: string) => Effect.sync(() => void fit.delete(topic))

      const remember = Effect.fnUntraced(function* (report: TopicReport) {
        const before = (yield* Ref.get(reports)).get(report.topic)
        yield* Ref.update(reports, (map) => new Map(map).set(report.topic, report))
        const known = new Set(before?.findings.map(({ sentence }) => sentence))
        yield* Effect.forEach(
          report.findings.filter(({ sentence }) => !known.has(sentence)),
          ({ kind, sentence }) => {
            const line = `topic ${report.topic}: ${sentence}`
            return Effect.annotateLogs(kind === "weak" ? Effect.logWarning(line) : Effect.logError(line), {
              topic: report.topic
            })
          },
          { discard: true }
        )
      })

      return TopicChecks.of({
        inspect: Effect.fn("TopicChecks.inspect")(function* (topic) {
          const info = yield* broker
            .ensureTopic(topic, wanted)
            .pipe(
              Effect.tapError((error) =>
                error._tag === "TopicUnavailable"
                  ? Effect.andThen(forget(topic), remember({ topic, findings: [], unavailable: error.reason }))
                  : Effect.void
              )
            )
          const settings = examine(info, { maxEventBytes, batchBytes, inboxDays })
          let noted = yield* counts.noted(topic)
          // Nothing was ever published to a topic that was never fit: its count binds nobody.
          if (noted === undefined && !stops([...settings, ...examineCount(info, noted)])) {
            noted = yield* counts.note(topic, info.partitions)
          }
          const findings = [...settings, ...examineCount(info, noted)]
          const partitions = noted ?? info.partitions
          if (stops(findings)) yield* forget(topic)
          else fit.set(topic, partitions)
          yield* remember({ topic, findings })
          return { info, partitions, findings }
        }),
        lastFit: (topic) => Effect.sync(() => fit.get(topic)),
        forget,
        reports: Effect.map(Ref.get(reports), (map) => [...map.values()])
      })
    })
  )

  static readonly layer: Layer.Layer<TopicChecks, never, Broker | PgClient.PgClient> = TopicChecks.layerNoDeps.pipe(
    Layer.provide(PartitionCounts.layer)
  )

  /**
   * Checks the topics before anything above is built: {@link TopicUnfit} refuses the start where a promise could break. Then looks
   * again every few minutes, and every few seconds while one of them is not fit.
   */
  static readonly layerStart = (
    topics: ReadonlyArray<string>
  ): Layer.Layer<never, TopicUnfit, TopicChecks | Supervised.Fibers> =>
    Layer.effectDiscard(
      Effect.gen(function* () {
        const checks = yield* TopicChecks
        yield* Effect.forEach(
          topics,
          Effect.fnUntraced(function* (topic) {
            const { findings } = yield* checks.inspect(topic)
            const sentences = findings
              .filter(({ kind }) => kind === "stops" || kind === "unsafe")
              .map(({ sentence }) => sentence)
            if (sentences.length > 0) return yield* new TopicUnfit({ topic, sentences })
          }),
          { discard: true }
        ).pipe(
          Effect.timeoutOrElse({
            duration: startPatienceMillis,
            orElse: () => Effect.logWarning("topics will be checked once the broker answers")
          }),
          Effect.catchTag(["BrokerUnavailable", "TopicUnavailable"], (error) =>
            Effect.logWarning(`topics will be checked later: ${error.message}`)
          )
        )
        yield* Supervised.forkLoop(
          "topic checks",
          Effect.fnUntraced(function* (stamp: Effect.Effect<void>) {
            // With them those that something was sent to, and that there was something to say about: it may be mended.
            const others = (yield* checks.reports)
              .filter(
                ({ findings, topic, unavailable }) =>
                  !topics.includes(topic) && (findings.length > 0 || unavailable !== undefined)
              )
              .map(({ topic }) => topic)
            // Each may take as long as a broker that swallows what it gets is waited for.
            const looks = yield* Effect.forEach([...topics, ...others], (topic) =>
              Effect.tap(Effect.result(checks.inspect(topic)), stamp)
            )
            const isAnswered = looks.every(Result.isSuccess)
            for (let nap = 0; nap < napsBetweenChecks; nap++) {
              yield* Effect.andThen(stamp, Effect.sleep(napMillis))
              const isSound = (yield* checks.reports).every(
                ({ findings, unavailable }) =>
                  unavailable === undefined && findings.every(({ kind }) => kind === "weak")
              )
              if (!isAnswered || !isSound) return
            }
          })
        )
      })
    )
}

/** A broker that is there answers within this; one that swallows what it gets must not keep orders from being taken. */
const startPatienceMillis = 5_000

/**
 * While the broker is away or a topic is not fit it is asked for so often, so that what was mended is soon seen; otherwise every five
 * minutes: someone may change a setting.
 */
const napMillis = 5_000
const napsBetweenChecks = 60
