/** The metrics of payments that a person has to look at. An alert belongs on each. */
import { Effect, Layer, Metric, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../platform/Rows.ts"
import * as Supervised from "../platform/Supervised.ts"

export const manualPayments = Metric.gauge("payments_manual", {
  description:
    "Payments that wait for a person: their outcome is unknown and no longer looked up, they are disputed, or the gateway contradicts them"
})

export const contradictionsTotal = Metric.counter("payments_contradicted_total", {
  description: "Reports and answers of the gateway that contradict what is recorded of a payment, or can't be read",
  incremental: true
})

/** As often as the other sampled metrics. */
const sampleMillis = 5_000
/** Bounds the cost of the count; a larger number would not change the alert. */
const maxCounted = 10_000

const counted = Rows.one(Schema.Struct({ count: Schema.Int }))

/** One sample, through an index that holds these payments only. */
export const sampleOnce = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { count } = yield* counted(sql`
    SELECT count(*)::int4 AS count FROM (SELECT FROM payments WHERE status = 'manual' LIMIT ${maxCounted}) AS manual`)
  yield* Metric.update(manualPayments, count)
})

/** Samples for as long as the layer lives. */
export const layer: Layer.Layer<never, never, SqlClient.SqlClient | Supervised.Fibers> = Layer.effectDiscard(
  Supervised.forkLoop("payment metrics", Effect.andThen(sampleOnce, Effect.sleep(sampleMillis)))
)
