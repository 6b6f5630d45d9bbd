/**
 * When topics are checked: at the start, and from time to time while the service runs. {@link TopicFindings} says for what.
 *
 * A setting that breaks a guarantee refuses the start, in a sentence for the operator. A broker that can't be reached refuses nothing: orders are
 * taken, and the topic is checked once the broker answers. A finding that `stops` pauses publishing to the topic from that check on, with
 * the sentence as its reason, until a check finds it mended. Health and the log report the others.
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
import { OutboxSettings } from "../outbox/Outbox.ts"
import { QueueSettings } from "../outbox/Queue.ts"
import { RetentionSettings } from "../platform/Retention.ts"
import * as Outages from "../platform/Outages.ts"
import * as Supervised from "../platform/Supervised.ts"
import { PartitionCounts } from "./PartitionCounts.ts"
import { examine, examineCount, type Finding, refusesStart, stopsPublishing } from "./TopicFindings.ts"

/** The last check of a topic. `unavailable`: why the topic could not be checked although the broker answered. */
export interface TopicReport {
  readonly topic: string
  readonly findings: ReadonlyArray<Finding>
  readonly unavailable?: string
}

/** The start is refused: a topic's settings break a guarantee. */
export class TopicUnfit extends Schema.TaggedError<TopicUnfit>()("TopicUnfit", {
  topic: Schema.String,
  sentences: Schema.Array(Schema.String)
}) {
  override get message() {
    return this.sentences.map((sentence) => `topic ${this.topic}: ${sentence}`).join("\n")
  }
}

/** A broker that can be reached answers within this. One that never answers must not keep orders from being taken. */
const startPatienceMillis = 5_000

/**
 * While the broker is unreachable or a topic has findings, it is checked this often, so that a mended setting is soon seen. Otherwise every
 * five minutes: someone may change a setting.
 */
const napMillis = 5_000
const napsBetweenChecks = 60

/** See {@link TopicChecks}. */
export interface TopicChecksService {
  /**
   * Checks the topic, making it if it is missing and the broker is set to. New findings go to the log. `partitions` is how many of them
   * its lanes are spread over.
   */
  readonly inspect: (topic: string) => Effect.Effect<
    {
      readonly info: TopicInfo
      readonly partitions: number
      readonly findings: ReadonlyArray<Finding>
    },
    BrokerUnavailable | TopicUnavailable
  >
  /** The topic's `partitions`, where the last check found nothing that stops it. Asks neither broker nor database. */
  readonly lastFit: (topic: string) => Effect.Effect<number | undefined>
  /** The last check no longer counts: {@link lastFit} is undefined until the next one. */
  readonly forget: (topic: string) => Effect.Effect<void>
  /** The last check of each topic. */
  readonly reports: Effect.Effect<ReadonlyArray<TopicReport>>
}

const log = (topic: string, { kind, sentence }: Finding) => {
  const line = `topic ${topic}: ${sentence}`
  return Effect.annotateLogs(kind === "weak" ? Effect.logWarning(line) : Effect.logError(line), { topic })
}

export class TopicChecks extends Context.Service<TopicChecks, TopicChecksService>()(
  "paid-once/operations/TopicChecks"
) {
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
        const added = report.findings.filter(({ sentence }) => !known.has(sentence))
        yield* Effect.forEach(added, (finding) => log(report.topic, finding), { discard: true })
      })

      const ensureTopic = (topic: string) =>
        Effect.tapError(broker.ensureTopic(topic, wanted), (error) =>
          error._tag === "TopicUnavailable"
            ? Effect.andThen(forget(topic), remember({ topic, findings: [], unavailable: error.reason }))
            : Effect.void
        )

      return TopicChecks.of({
        inspect: Effect.fn("TopicChecks.inspect")(function* (topic) {
          const info = yield* ensureTopic(topic)
          const settings = examine(info, { maxEventBytes, batchBytes, inboxDays })
          let noted = yield* counts.noted(topic)
          // The count is noted at the first check that allows publishing. Before that no event depends on it.
          if (noted === undefined && !stopsPublishing([...settings, ...examineCount(info, noted)])) {
            noted = yield* counts.note(topic, info.partitions)
          }
          const findings = [...settings, ...examineCount(info, noted)]
          const partitions = noted ?? info.partitions
          if (stopsPublishing(findings)) yield* forget(topic)
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
   * Checks the topics before any layer above is built: {@link TopicUnfit} refuses the start where a guarantee could break. Then checks
   * them again every few minutes, and every few seconds while one of them has a finding that is not just `weak`.
   */
  static readonly layerStart = (
    topics: ReadonlyArray<string>
  ): Layer.Layer<never, TopicUnfit, TopicChecks | Supervised.Fibers> =>
    Layer.effectDiscard(
      Effect.gen(function* () {
        const checks = yield* TopicChecks
        yield* checkStart(checks, topics)
        yield* Supervised.forkLoop("topic checks", (stamp) => round(checks, topics, stamp))
      })
    )
}

/** The check at the start. Without an answer from the broker the start goes on unchecked. */
const checkStart = (checks: TopicChecksService, topics: ReadonlyArray<string>): Effect.Effect<void, TopicUnfit> =>
  Effect.forEach(
    topics,
    Effect.fnUntraced(function* (topic) {
      const { findings } = yield* inspectTold(checks, topic)
      const sentences = findings.filter(refusesStart).map(({ sentence }) => sentence)
      if (sentences.length > 0) return yield* new TopicUnfit({ topic, sentences })
    }),
    { discard: true }
  ).pipe(
    Effect.timeoutOrElse({
      duration: startPatienceMillis,
      orElse: () =>
        Effect.flatMap(Outages.Outages, ({ failed }) => {
          const reason = `no answer within ${startPatienceMillis} ms`
          return Effect.forEach(topics, (topic) => failed(partOf(topic), { subject: "the broker", reason }), {
            discard: true
          })
        })
    }),
    // Checked again by the first round.
    Effect.catchTag(["BrokerUnavailable", "TopicUnavailable"], () => Effect.void)
  )

const partOf = (topic: string) => `checks of ${topic}`

/** {@link TopicChecksService.inspect}, whose failures the log tells as an outage. */
const inspectTold = (checks: TopicChecksService, topic: string) =>
  Effect.flatMap(Outages.Outages, ({ failed, recovered }) =>
    checks.inspect(topic).pipe(
      Effect.tap(() => recovered(partOf(topic))),
      Effect.tapError((error) => failed(partOf(topic), error[Outages.outage]))
    )
  )

/** One round of checks, and the wait before the next one. */
const round = Effect.fnUntraced(function* (
  checks: TopicChecksService,
  topics: ReadonlyArray<string>,
  stamp: Effect.Effect<void>
) {
  // Also checks the topics that events were sent to and that had findings: they may be mended.
  const others = (yield* checks.reports)
    .filter(
      ({ findings, topic, unavailable }) =>
        !topics.includes(topic) && (findings.length > 0 || unavailable !== undefined)
    )
    .map(({ topic }) => topic)
  // Stamped after each, because a broker that never answers takes its whole timeout for each.
  const results = yield* Effect.forEach([...topics, ...others], (topic) =>
    Effect.tap(Effect.result(inspectTold(checks, topic)), stamp)
  )
  const isAnswered = results.every(Result.isSuccess)
  for (let nap = 0; nap < napsBetweenChecks; nap++) {
    yield* Effect.andThen(stamp, Effect.sleep(napMillis))
    const isSound = (yield* checks.reports).every(
      ({ findings, unavailable }) => unavailable === undefined && findings.every(({ kind }) => kind === "weak")
    )
    if (!isAnswered || !isSound) return
  }
})
