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

/** Of the charts before somebody looked: their points are joined at this distance. */
const bucketSeconds = 10

/** Some hundred milliseconds of work, once when somebody begins to look. Where more was published the past begins later. */
const maxPastEvents = 50_000

/** Ten seconds of the past, as the database remembers them. */
export const PastPace = Schema.Struct({
  /** The end of these seconds, by the database's clock. */
  at: Schema.String,
  atMillis: Schema.Number,
  /** Payments captured in the minute before the end. */
  paidLastMinute: Schema.Int,
  /** Events that the outbox has published, each second; null where none is archived. */
  publishedPerSecond: Schema.NullOr(Schema.Number),
  publishLatencyMillis: Pace.fields.publishLatencyMillis
})
export type PastPace = typeof PastPace.Type

const pastPaces = Rows.all(PastPace)

export class PaceReport extends Context.Service<
  PaceReport,
  {
    readonly read: Effect.Effect<Pace>
    /**
     * What was paid and published between two moments in milliseconds, oldest first, from the first payment or event on. Events count that occurred
     * in the hour before, or later. The queue's length and the consumers' pace are not remembered.
     */
    readonly past: (sinceMillis: number, untilMillis: number) => Effect.Effect<ReadonlyArray<PastPace>>
  }
>()("paid-once/application/PaceReport") {
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
      const past = (sinceMillis: number, untilMillis: number) =>
        Effect.orDie(
          pastPaces(sql`
            WITH span AS MATERIALIZED (
              SELECT since, ceil(extract(epoch FROM until - since) / ${bucketSeconds}::int4)::int4 - 1 AS last
              FROM (SELECT to_timestamp(${sinceMillis}::float8 / 1000) AS since, to_timestamp(${untilMillis}::float8 / 1000) AS until) AS given),
            events AS MATERIALIZED (
              SELECT published_at, occurred_at FROM event_log
              WHERE event_id >= (SELECT uuid_v7_floor_at(since - interval '1 hour') FROM span) ORDER BY event_id DESC LIMIT ${maxPastEvents}),
            known AS (
              SELECT count(*) > 0 AS archived, CASE WHEN count(*) = ${maxPastEvents} THEN min(occurred_at) END AS complete_from FROM events),
            published AS (
              SELECT floor(extract(epoch FROM published_at - since) / ${bucketSeconds}::int4)::int4 AS n, count(*) AS events,
                     percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM published_at - occurred_at) * 1000) AS millis
              FROM events, span WHERE published_at >= since GROUP BY 1),
            paid AS (
              SELECT floor(extract(epoch FROM captured_at - since) / ${bucketSeconds}::int4)::int4 AS n, count(*) AS payments
              FROM (SELECT captured_at FROM payments WHERE captured_at >= (SELECT since - interval '1 minute' FROM span) LIMIT ${maxPaid}) AS captured, span
              GROUP BY 1),
            seconds AS (
              SELECT n, since + (n + 1) * ${bucketSeconds}::int4 * interval '1 second' AS ended, events, millis,
                     sum(coalesce(payments, 0)) OVER (ORDER BY n ROWS 5 PRECEDING)::int4 AS paid,
                     bool_or(payments IS NOT NULL OR events IS NOT NULL) OVER (ORDER BY n) AS begun
              FROM span, generate_series(-6, last - 1) AS n LEFT JOIN published USING (n) LEFT JOIN paid USING (n))
            SELECT ${sql.literal(isoTime("ended"))} AS at, (extract(epoch FROM ended) * 1000)::float8 AS "atMillis", paid AS "paidLastMinute",
                   CASE WHEN archived THEN (coalesce(events, 0) / ${bucketSeconds}::float8) END AS "publishedPerSecond",
                   CASE WHEN millis[1] IS NOT NULL THEN json_build_object('p50', millis[1], 'p99', millis[2]) END AS "publishLatencyMillis"
            FROM seconds, known
            WHERE n >= 0 AND begun AND (complete_from IS NULL OR ended - ${bucketSeconds}::int4 * interval '1 second' >= complete_from) ORDER BY n`)
        )
      return PaceReport.of({ read, past })
    })
  )
}
