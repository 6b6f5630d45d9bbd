/** The reconciliation of each night, and the metric that the alert looks at. */
import { Effect, Layer, Metric } from "effect"
import * as Supervised from "../../platform/Supervised.ts"
import { Reconciliation } from "./Reconciliation.ts"
import { ReconciliationRuns } from "./ReconciliationRuns.ts"

/** The night has an hour to begin in. */
const lookMillis = 30_000

/** The actor of a nightly run. */
export const nightly = "the nightly round"

/** Runs it if it is due. It repairs nothing: that is an operator's decision. */
export const runIfDue = Effect.fnUntraced(function* (progress: Effect.Effect<void>) {
  if (!(yield* ReconciliationRuns.use(({ isDue }) => isDue))) return undefined
  const report = yield* Reconciliation.use(({ run }) => run({ actor: nightly, progress }))
  const { differences, notCompared } = report
  yield* differences === 0 && notCompared.length === 0
    ? Effect.logInfo("reconciliation: all books agree")
    : Effect.logError(
        `reconciliation: ${differences} differences${notCompared.map(({ why }) => `; not compared: ${why}`).join("")}. Look at paid-once reconcile, or at the console`
      )
  return report
})

/** Looks for as long as the layer lives whether it is time. Of several processes that look at once each may run: that costs time, and harms nothing. */
export const layer: Layer.Layer<never, never, Reconciliation | ReconciliationRuns | Supervised.Fibers> =
  Layer.effectDiscard(
    Supervised.forkLoop(
      "reconciliation",
      Effect.fnUntraced(function* (stamp: Effect.Effect<void>) {
        yield* runIfDue(stamp)
        yield* Effect.sleep(lookMillis)
      })
    )
  )

const differences = Metric.gauge("reconciliation_differences", {
  description: "Differences between the books that the last reconciliation has left"
})

/** As often as the other sampled metrics. */
const sampleMillis = 5_000

/** Samples what the last run of any process has left, for as long as the layer lives. */
export const layerMetric: Layer.Layer<never, never, ReconciliationRuns | Supervised.Fibers> = Layer.effectDiscard(
  Supervised.forkLoop(
    "reconciliation metrics",
    Effect.gen(function* () {
      const open = yield* ReconciliationRuns.use(({ open }) => open)
      yield* Metric.update(differences, open.differences)
      yield* Effect.sleep(sampleMillis)
    })
  )
)
