/** How many payments wait for a person: the alarm to set a rule on. */
import { Effect, Layer, Metric, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../platform/Rows.ts"
import * as Supervised from "../platform/Supervised.ts"

export const manualPayments = Metric.gauge("payments_manual", {
  description: "Payments whose outcome nobody here can find out: each waits for a person, or for the gateway's report"
})

/** As often as the other sampled metrics. */
const sampleMillis = 5_000
/** Beyond this many the number says nothing more. */
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
