/** What health says of the topics: whether they are fit for what the service promises, and what an operator has to set. */
import { Effect, Layer } from "effect"
import { TopicChecks } from "../messaging/outbox/TopicChecks.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Adds the part to those that are there already. The sentences are about settings: no host or user is named in them. */
export const layer: Layer.Layer<never, never, TopicChecks> = Layer.effect(
  HealthParts,
  Effect.gen(function* () {
    const others = yield* HealthParts
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
    return [...others, { name: "topics", report }]
  })
)
