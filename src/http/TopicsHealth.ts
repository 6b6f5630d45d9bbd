/** What health says of the topics: whether they are fit for what the service promises, and what an operator has to set. */
import { Effect, Layer } from "effect"
import { TopicChecks } from "../operations/TopicChecks.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part. The sentences are about settings: no host or user is named in them. */
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
