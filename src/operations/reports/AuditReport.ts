/** The audit of operators' decisions, for a person to read: actor, action, reason, and the states before and after. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pages from "../../platform/Pages.ts"
import * as Rows from "../../platform/Rows.ts"
import { inLast, listLimit, matching, type PageOptions } from "./ReportSql.ts"

/** A decision. Its id is a number, as text: it may be above the largest integer of JavaScript. */
export const Entry = Schema.Struct({
  id: Schema.String,
  at: Schema.String,
  actor: Schema.String,
  action: Schema.String,
  reason: Schema.String,
  subject: Schema.String,
  subjectId: Schema.String,
  before: Schema.Record(Schema.String, Schema.Json),
  after: Schema.Record(Schema.String, Schema.Json)
}).annotate({ identifier: "AuditEntry" })
export type Entry = typeof Entry.Type

/** Which decisions; a field that is not set matches all. */
export interface Filter {
  readonly actor?: string | undefined
  readonly action?: string | undefined
  /** The kind of thing that was decided about, for example `outbox event`. */
  readonly subject?: string | undefined
  readonly subjectId?: string | undefined
  /** Only decisions of these last seconds. */
  readonly sinceSeconds?: number | undefined
}

/** The id of the last entry of a page. */
export const Cursor = Schema.String.check(
  Schema.isPattern(/^[1-9]\d{0,17}$/, { message: "must be the nextCursor of the page before" })
)

const allEntries = Rows.all(Entry)

export class AuditReport extends Context.Service<
  AuditReport,
  {
    /** The decisions that match, the newest first. */
    readonly list: (filter: Filter, page: PageOptions) => Effect.Effect<Pages.Page<Entry>>
  }
>()("paid-once/operations/reports/AuditReport") {
  static readonly layer: Layer.Layer<AuditReport, never, SqlClient.SqlClient> = Layer.effect(
    AuditReport,
    Effect.map(SqlClient.SqlClient, (sql) =>
      AuditReport.of({
        list: Effect.fn("AuditReport.list")(function* (filter, page) {
          const { action, actor, sinceSeconds, subject, subjectId } = filter
          const limit = Math.min(page.limit, listLimit)
          const found = yield* allEntries(sql`
            SELECT audit_id::text AS id, ${sql.literal(isoTime("at"))} AS at, actor, action, reason, subject, subject_id AS "subjectId",
                   before, after
            FROM operator_audit
            WHERE ${matching(sql, { actor, action, subject, subject_id: subjectId })} AND ${inLast(sql, "at", sinceSeconds)}
              AND ${page.cursor === undefined ? sql`TRUE` : sql`audit_id < ${page.cursor}::bigint`}
            ORDER BY audit_id DESC LIMIT ${limit + 1}`)
          return Pages.page(found, limit)
        }, Effect.orDie)
      })
    )
  )
}
