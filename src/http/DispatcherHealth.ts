/** What health says of the outbox in this process: the lanes its dispatcher owns, the topics it can't reach, and whether topics are fit. */
import { Effect, Layer, Option } from "effect"
import { Dispatcher } from "../messaging/outbox/Dispatcher.ts"
import { LaneWorkers } from "../messaging/outbox/LaneWorkers.ts"
import { TopicChecks } from "../messaging/outbox/TopicChecks.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the dispatcher's part where this process has the role, and the topics' part everywhere. */
export const layer: Layer.Layer<never, never, Dispatcher | TopicChecks> = Layer.effect(
  HealthParts,
  Effect.gen(function* () {
    const others = yield* HealthParts
    const workers = yield* Effect.serviceOption(LaneWorkers)
    const dispatcher = yield* Dispatcher
    const checks = yield* TopicChecks

    /** Sentences about settings: no host or user is named in them. */
    const topics = Effect.map(checks.reports, (reports): PartReport => ({
      status: reports.some(
        ({ findings, unavailable }) => unavailable !== undefined || findings.some(({ kind }) => kind !== "weak")
      )
        ? "degraded"
        : "ready",
      topics: reports.map(({ findings, topic, unavailable }) => ({
        topic,
        ...(unavailable === undefined ? {} : { unavailable }),
        findings: findings.map(({ kind, sentence }) => ({ kind, sentence }))
      }))
    }))
    const dispatching = (owner: LaneWorkers["Service"]) =>
      Effect.gen(function* (): Effect.fn.Return<PartReport> {
        const lanes = yield* owner.lanes
        const pausedTopics = yield* dispatcher.pauses
        return {
          status: pausedTopics.length === 0 ? "ready" : "degraded",
          lanesOwned: lanes.length,
          pausedTopics: pausedTopics.map(({ attempt, topic }) => ({ topic, attempt }))
        }
      })
    return [
      ...others,
      ...(Option.isSome(workers) ? [{ name: "dispatcher", report: dispatching(workers.value) }] : []),
      { name: "topics", report: topics }
    ]
  })
)
