/** The overview, composed: what the database holds for all processes, what the broker tells, and the health of this process. */
import { Context, Effect, Layer, SubscriptionRef } from "effect"
import { PaceReport } from "../../application/views/PaceReport.ts"
import { StatusReport } from "../../application/views/StatusReport.ts"
import type { Sample } from "../../application/views/StatusView.ts"
import { Broker } from "../../brokers/Broker.ts"
import { ConsumerPace } from "../../operations/reports/ConsumerPace.ts"
import { LaneReport } from "../../operations/reports/LaneReport.ts"
import { PoolStats } from "../../postgres/Database.ts"
import { Health } from "../Health.ts"
import type { Overview, Trouble } from "./OverviewApi.ts"
import { verdictOf } from "./Verdict.ts"

export class Overviews extends Context.Service<
  Overviews,
  {
    /** The overview, with a sample of the same moment. It dies with the database's outage. */
    readonly read: Effect.Effect<{ readonly overview: Omit<Overview, "rates">; readonly sample: Sample }>
    /** What the database remembers of the time between two samples' ids, oldest first. */
    readonly past: (sinceId: number, untilId: number) => Effect.Effect<ReadonlyArray<Sample>>
    /** What is left of it without the database. */
    readonly trouble: Effect.Effect<Trouble>
  }
>()("paid-once/http/Overviews") {
  static readonly layer: Layer.Layer<
    Overviews,
    never,
    Broker | ConsumerPace | Health | LaneReport | PaceReport | PoolStats | StatusReport
  > = Layer.effect(
    Overviews,
    Effect.gen(function* () {
      const broker = yield* Broker
      const consumerPace = yield* ConsumerPace
      const health = yield* Health
      const laneReport = yield* LaneReport
      const paceReport = yield* PaceReport
      const pool = yield* PoolStats
      const statusReport = yield* StatusReport

      const read = Effect.gen(function* () {
        const looked = yield* consumerPace.latest
        const lags = looked?.lags ?? []
        const consumerRates = looked?.pace
        const status = yield* statusReport.read
        const lanes = yield* laneReport.lanes
        const pace = yield* paceReport.read
        const healthReport = yield* health.report
        const isAvailable = yield* SubscriptionRef.get(broker.available)
        const { at, atMillis, paidLastMinute } = pace
        const lagSecondsWorst = consumerRates?.lagSecondsWorst ?? null
        const verdict = verdictOf(healthReport, { atMillis, status, lanes, lags, lagSecondsWorst, paidLastMinute })
        const overview: Omit<Overview, "rates"> = {
          at,
          verdict,
          ...status,
          lanes,
          consumers: status.consumers.map((consumer) => {
            const lag = lags.find((one) => one.consumer === consumer.consumer)
            return {
              ...consumer,
              lag: lag?.lag ?? null,
              lagUnknown:
                lag === undefined
                  ? ("not read yet" as const)
                  : lag.lag === null
                    ? ("the broker does not tell" as const)
                    : null,
              partitions: (lag?.partitions ?? []).map(({ lag: own, owner, partition }) => ({
                topic: lag!.topic,
                partition,
                owner,
                lag: own
              }))
            }
          }),
          broker: {
            kind: broker.name,
            state: isAvailable ? "ready" : "unreachable",
            // The driver's words may name hosts and users: the log has them.
            detail: isAvailable ? null : "the last exchange with it failed; it is tried again by itself"
          },
          database: {
            state: healthReport.parts["database"]?.status === "ready" ? "ready" : "unreachable",
            open: pool.open(),
            max: pool.max
          },
          health: healthReport.parts
        }
        const sample: Sample = {
          id: Math.round(atMillis),
          at,
          ordersPaidPerMinute: paidLastMinute,
          eventsPublishedPerSecond: consumerRates?.publishedPerSecond ?? null,
          publishLatencyMillis: pace.publishLatencyMillis,
          effectsPerSecond: consumerRates?.handledPerSecond ?? {},
          queued: status.outbox.queued,
          oldestQueuedSeconds: status.outbox.oldestQueuedSeconds,
          lagSecondsWorst
        }
        return { overview, sample }
      })

      const trouble = Effect.map(health.report, (report) => ({
        verdict: verdictOf(report, undefined),
        health: report.parts
      }))
      const past = (sinceId: number, untilId: number) =>
        Effect.map(paceReport.past(sinceId, untilId), (paces) =>
          paces.map(({ at, atMillis, paidLastMinute, publishLatencyMillis, publishedPerSecond }): Sample => ({
            id: Math.round(atMillis),
            at,
            ordersPaidPerMinute: paidLastMinute,
            eventsPublishedPerSecond: publishedPerSecond,
            publishLatencyMillis,
            effectsPerSecond: {},
            queued: null,
            oldestQueuedSeconds: null,
            lagSecondsWorst: null
          }))
        )
      return Overviews.of({ read, past, trouble })
    })
  )
}
