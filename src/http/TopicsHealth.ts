/** The part `topics` of health: whether the topics' settings keep the service's promises, and what an operator has to set. */
import { Effect, Layer } from "effect"
import { TopicChecks } from "../operations/TopicChecks.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part. Its sentences are about settings, and name no host or user. */
export const layer: Layer.Layer<never, never, HealthParts | TopicChecks> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { add } = yield* HealthParts
    const { reports } = yield* TopicChecks
    const report = Effect.map(reports, (reports): PartReport => ({
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
    yield* add({ name: "topics", report })
  })
)
