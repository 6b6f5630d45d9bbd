/** The stored results of reconciliations. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Difference, Mended } from "./Difference.ts"

/** A difference as a report lists it, with what became of its repair where one was asked for. */
export const ReportedDifference = Schema.Struct({
  ...Difference.fields,
  repair: Schema.NullOr(Mended)
}).annotate({ identifier: "ReportedDifference" })
export type ReportedDifference = typeof ReportedDifference.Type

/** A rule, and how many differences of it are left. */
export const RuleCount = Schema.Struct({
  rule: Schema.String,
  books: Schema.String,
  count: Schema.Int,
  /** Its meaning for money. */
  means: Schema.String,
  /** The repair; null where only a person can mend it. */
  repair: Schema.NullOr(Schema.String),
  /** What that person does. A result of an older version does not have it. */
  byHand: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "RuleCount" })
export type RuleCount = typeof RuleCount.Type

const body = {
  /** How many rows each walk went through. */
  compared: Schema.Array(Schema.Struct({ name: Schema.String, rows: Schema.Int })),
  /** Rules that could not be checked, and why. Their differences of the run before still count. */
  notCompared: Schema.Array(Schema.Struct({ rules: Schema.Array(Schema.String), why: Schema.String })),
  /** Every rule. */
  rules: Schema.Array(RuleCount),
  repaired: Schema.Int,
  /** Some of the differences, those that were repaired or found gone included. */
  items: Schema.Array(ReportedDifference)
}
const Body = Schema.Struct(body)

/** A finished reconciliation. */
export const ReconciliationReport = Schema.Struct({
  id: Schema.String,
  startedAt: Schema.String,
  finishedAt: Schema.String,
  actor: Schema.String,
  /** Differences that are left. */
  differences: Schema.Int,
  ...body
}).annotate({ identifier: "ReconciliationReport" })
export type ReconciliationReport = typeof ReconciliationReport.Type

/** Differences of a rule that a stored result lists, and an answer where no other number is asked for. */
export const listedLimit = 20

/** A quarter, as auditors ask for. */
const keptDays = 92

const encodeBody = Schema.encodeEffect(Schema.fromJsonString(Body))
const firstReport = Rows.first(ReconciliationReport)
const oneTime = Rows.one(Schema.Struct({ at: Schema.String }))
const oneCount = Rows.one(Schema.Struct({ differences: Schema.Int, sinceSeconds: Schema.NullOr(Schema.Number) }))
const oneDue = Rows.one(Schema.Struct({ isDue: Schema.Boolean }))

/** The hour in UTC in which the nightly run begins: traffic is low in Europe and in America's evening is over. */
const nightHour = 3

export class ReconciliationRuns extends Context.Service<
  ReconciliationRuns,
  {
    readonly last: Effect.Effect<ReconciliationReport | undefined>
    /** How many differences the last run left, and for how long there have been some. */
    readonly open: Effect.Effect<{ readonly differences: number; readonly sinceSeconds: number | null }>
    /** Now, by the database's clock. */
    readonly now: Effect.Effect<string>
    readonly store: (report: Omit<ReconciliationReport, "finishedAt">) => Effect.Effect<ReconciliationReport>
    /** Whether the nightly run is due: it is night, and no run has begun since it is. */
    readonly isDue: Effect.Effect<boolean>
  }
>()("paid-once/application/reconciliation/ReconciliationRuns") {
  static readonly layer: Layer.Layer<ReconciliationRuns, never, PgClient.PgClient> = Layer.effect(
    ReconciliationRuns,
    Effect.map(PgClient.PgClient, (sql) => {
      const last = Effect.orDie(
        firstReport(sql`
          SELECT run_id::text AS id, ${sql.literal(isoTime("started_at"))} AS "startedAt", ${sql.literal(isoTime("finished_at"))} AS "finishedAt",
                 actor, differences, report -> 'compared' AS compared, report -> 'notCompared' AS "notCompared", report -> 'rules' AS rules,
                 (report ->> 'repaired')::int4 AS repaired, report -> 'items' AS items
          FROM reconciliation_runs ORDER BY finished_at DESC LIMIT 1`)
      )
      const store = Effect.fnUntraced(function* (report: Omit<ReconciliationReport, "finishedAt">) {
        const { sql } = yield* Transaction
        const { actor, differences, id, startedAt } = report
        const { at } = yield* oneTime(sql`
          INSERT INTO reconciliation_runs (run_id, started_at, finished_at, actor, differences, report)
          VALUES (${id}::uuid, ${startedAt}::timestamptz, clock_now(), ${actor}, ${differences}::int4, ${yield* encodeBody(report)}::text::json)
          RETURNING ${sql.literal(isoTime("finished_at"))} AS at`)
        yield* sql`DELETE FROM reconciliation_runs WHERE finished_at < clock_now() - ${keptDays * 24}::int4 * interval '1 hour'`
        return { ...report, finishedAt: at }
      })
      return ReconciliationRuns.of({
        last,
        open: Effect.orDie(
          oneCount(sql`
            SELECT coalesce((SELECT differences FROM reconciliation_runs ORDER BY finished_at DESC LIMIT 1), 0) AS differences,
                   (SELECT extract(epoch FROM clock_now() - min(finished_at))::float8 FROM reconciliation_runs
                    WHERE finished_at > coalesce((SELECT max(finished_at) FROM reconciliation_runs WHERE differences = 0), '-infinity')) AS "sinceSeconds"`)
        ),
        now: Effect.map(
          Effect.orDie(oneTime(sql`SELECT ${sql.literal(isoTime("clock_now()"))} AS at`)),
          ({ at }) => at
        ),
        store: (report) => Effect.orDie(Effect.provideService(Transaction.run(store(report)), PgClient.PgClient, sql)),
        isDue: Effect.map(
          Effect.orDie(
            oneDue(sql`
              SELECT extract(hour FROM now AT TIME ZONE 'UTC') = ${nightHour}::int4
                     AND NOT EXISTS (SELECT FROM reconciliation_runs WHERE started_at >= date_trunc('hour', now, 'UTC')) AS "isDue"
              FROM (SELECT clock_now() AS now) AS clock`)
          ),
          ({ isDue }) => isDue
        )
      })
    })
  )
}
