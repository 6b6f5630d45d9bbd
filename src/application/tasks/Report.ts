/**
 * The task `report`: what was captured and refunded, by UTC day and currency, from the payments.
 *
 * All figures come from one snapshot, taken at `asOf`. It is read day by day, so that no statement runs long and memory holds a few lines
 * for each day.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SumMinor } from "../../domain/Money.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import * as TaskHandler from "../../tasks/TaskHandler.ts"
import type { TaskType } from "../../tasks/TaskType.ts"

/** A leap year. A longer range is requested in parts. */
export const maxDays = 366

/** A year of 27 currencies every day, in a megabyte. A day has at most a line for each currency, so fewer days always fit. */
const maxLines = 10_000

/** A day that exists, in UTC. Reports begin with this century: the bound keeps out years that no payment has. */
const Day = Schema.String.check(
  Schema.makeFilter(
    (text: string) =>
      (/^20\d\d-\d\d-\d\d$/.test(text) && isoDay(Date.parse(text)) === text) ||
      "must be a day of this century as YYYY-MM-DD, for example 2026-03-31"
  )
)

const millisADay = 86_400_000
const isoDay = (millis: number) => (Number.isNaN(millis) ? "" : new Date(millis).toISOString().slice(0, 10))

/** The days from `from` to `to`, both included. */
export const ReportRange = Schema.Struct({ from: Day, to: Day }).check(
  Schema.makeFilter(({ from, to }: { readonly from: string; readonly to: string }) =>
    to < from
      ? { path: ["to"], issue: "must not be before from" }
      : daysOf({ from, to }).length > maxDays
        ? { path: ["to"], issue: `must be at most ${maxDays} days from from, which counts as one` }
        : undefined
  )
)
export type ReportRange = typeof ReportRange.Type

const daysOf = ({ from, to }: { readonly from: string; readonly to: string }): ReadonlyArray<string> =>
  Array.from({ length: (Date.parse(to) - Date.parse(from)) / millisADay + 1 }, (_, index) =>
    isoDay(Date.parse(from) + index * millisADay)
  )

/** The task type, for its callers. */
export const reportType: TaskType<ReportRange> = {
  name: "report",
  payload: ReportRange,
  // A run may read a year of payments, and holds a connection and a snapshot meanwhile.
  concurrency: 1,
  // Millions of payments take about a minute; an older snapshot would hold back vacuum.
  timeoutMillis: 300_000
}

/** Of one currency: sums of amounts, and how many payments. */
export const Figures = Schema.Struct({
  currency: Schema.String,
  capturedMinor: SumMinor,
  refundedMinor: SumMinor,
  netMinor: SumMinor,
  captures: Schema.Int,
  refunds: Schema.Int
})

/** A report's figures. `totals` has a row for each currency, in the order of their codes. */
export const ReportResult = Schema.Struct({
  from: Schema.String,
  to: Schema.String,
  asOf: Schema.String,
  totals: Schema.Array(Figures),
  csv: Schema.String
})
export type ReportResult = typeof ReportResult.Type

/** Sums of one day, or of the whole range, as exact bigints. */
type Sums = Readonly<Record<"captured" | "refunded" | "captures" | "refunds", bigint>>

const figuresOf = (
  currency: string,
  { captured, captures, refunded, refunds }: Sums
): (typeof ReportResult.Type)["totals"][number] => ({
  currency,
  capturedMinor: String(captured),
  refundedMinor: String(refunded),
  netMinor: String(captured - refunded),
  captures: Number(captures),
  refunds: Number(refunds)
})

const snapshot = Rows.one(Schema.Struct({ asOf: Schema.String }))
const sumsOfDay = Rows.all(
  Schema.Struct({
    currency: Schema.String,
    captured: Schema.BigIntFromString,
    refunded: Schema.BigIntFromString,
    captures: Schema.BigInt,
    refunds: Schema.BigInt
  })
)

const header = "day,currency,captured_minor,refunded_minor,net_minor,captures,refunds"

/** The report of these days, as of now. */
export const compute = Effect.fn("Report.compute")(
  function* (range: ReportRange) {
    const { sql } = yield* Transaction
    // The first statement takes the snapshot that all others see.
    const { asOf } = yield* snapshot(sql`
      SELECT to_char(clock_now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "asOf"`)
    const lines = [header]
    const totals = new Map<string, Sums>()
    for (const day of daysOf(range)) {
      const rows = yield* sumsOfDay(sql`
        SELECT currency, coalesce(sum(captured), 0)::text AS captured, coalesce(sum(refunded), 0)::text AS refunded,
               count(captured) AS captures, count(refunded) AS refunds
        FROM (SELECT currency, captured_minor AS captured, NULL::int8 AS refunded FROM payments
              WHERE captured_at >= ${day}::timestamp AT TIME ZONE 'UTC'
                AND captured_at < (${day}::timestamp + interval '1 day') AT TIME ZONE 'UTC'
              UNION ALL
              SELECT currency, NULL, refunded_minor FROM payments
              WHERE refunded_at >= ${day}::timestamp AT TIME ZONE 'UTC'
                AND refunded_at < (${day}::timestamp + interval '1 day') AT TIME ZONE 'UTC') AS movements
        GROUP BY currency ORDER BY currency`)
      for (const { currency, ...row } of rows) {
        const { captured, refunded } = row
        lines.push([day, currency, captured, refunded, captured - refunded, row.captures, row.refunds].join(","))
        const before = totals.get(currency) ?? { captured: 0n, refunded: 0n, captures: 0n, refunds: 0n }
        totals.set(currency, {
          captured: before.captured + captured,
          refunded: before.refunded + refunded,
          captures: before.captures + row.captures,
          refunds: before.refunds + row.refunds
        })
      }
      if (lines.length > maxLines) {
        return yield* new TaskHandler.TaskRefused({
          reason: `there are more than ${maxLines} lines: ask for fewer days`
        })
      }
    }
    const sorted = [...totals].toSorted(([a], [b]) => (a < b ? -1 : 1))
    const result: ReportResult = {
      ...range,
      asOf,
      totals: sorted.map(([currency, sums]) => figuresOf(currency, sums)),
      // RFC 4180: each line ends with CRLF.
      csv: lines.map((line) => `${line}\r\n`).join("")
    }
    return result
  },
  (effect) => Transaction.run(effect),
  Effect.provideService(SqlClient.BeginTransaction, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
)

export const report = TaskHandler.make(
  reportType,
  Effect.fn("Report.run")(function* ({ payload, taskId }) {
    const { asOf, csv, from, to, totals } = yield* compute(payload)
    return Effect.gen(function* () {
      const { sql } = yield* Transaction
      yield* sql`
        INSERT INTO generated_reports (task_id, from_day, to_day, as_of, totals, csv, created_at)
        VALUES (${taskId}::uuid, ${from}::date, ${to}::date, ${asOf}::timestamptz, ${JSON.stringify(totals)}::text::jsonb, ${csv}, clock_now())`
    })
  })
)
