/** How fast money and events move, read from the database: so it is true for all processes together, whichever of them asks. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"

/** See {@link PaceReport}. */
export const Pace = Schema.Struct({
  /** By the database's clock, as text and in milliseconds. */
  at: Schema.String,
  atMillis: Schema.Number,
  /** Payments captured in the last minute. */
  paidLastMinute: Schema.Int,
  /** From commit to acknowledgement, of the last events; null where none was published in the last minute. */
  publishLatencyMillis: Schema.NullOr(Schema.Struct({ p50: Schema.Number, p99: Schema.Number }))
})
export type Pace = typeof Pace.Type

const onePace = Rows.one(Pace)

/** Bounds the reads of an index. More payments in a minute are shown as so many. */
const maxPaid = 100_000

/** A hundredth of them is five: enough for a percentile that does not jump with each event. They are read by their key, newest first. */
const latencyEvents = 500

export class PaceReport extends Context.Service<PaceReport, { readonly read: Effect.Effect<Pace> }>()(
  "paid-once/application/PaceReport"
) {
  static readonly layer: Layer.Layer<PaceReport, never, SqlClient.SqlClient> = Layer.effect(
    PaceReport,
    Effect.map(SqlClient.SqlClient, (sql) => {
      const read = Effect.orDie(
        onePace(sql`
          WITH moment AS MATERIALIZED (SELECT clock_now() AS now, clock_now() - interval '1 minute' AS ago),
          latency AS (
            SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM published_at - occurred_at) * 1000) AS millis
            FROM (
              SELECT published_at, occurred_at FROM event_log
              WHERE event_id >= (SELECT uuid_v7_floor_at(ago) FROM moment) ORDER BY event_id DESC LIMIT ${latencyEvents}
            ) AS newest)
          SELECT ${sql.literal(isoTime("now"))} AS at, (extract(epoch FROM now) * 1000)::float8 AS "atMillis",
                 (SELECT count(*) FROM (SELECT FROM payments WHERE captured_at >= (SELECT ago FROM moment) LIMIT ${maxPaid}) AS paid)::int4
                   AS "paidLastMinute",
                 (SELECT CASE WHEN millis[1] IS NOT NULL THEN json_build_object('p50', millis[1], 'p99', millis[2]) END FROM latency)
                   AS "publishLatencyMillis"
          FROM moment`)
      )
      return PaceReport.of({ read })
    })
  )
}
