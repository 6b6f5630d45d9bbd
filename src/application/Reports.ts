/** Revenue reports: asked for now, computed by a task, fetched when they are ready. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { TaskId, TaskState } from "../tasks/TaskType.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type ReportRange, ReportResult, reportType } from "./tasks/Report.ts"

/** No report was asked for under this id, or it is so old that it was cleaned up. */
export class ReportNotFound extends Schema.TaggedError<ReportNotFound>()("ReportNotFound", { taskId: TaskId }) {
  override get message() {
    return `there is no report ${this.taskId}`
  }
}

/** How far a report is. */
export const ReportView = Schema.Struct({
  taskId: TaskId,
  state: TaskState,
  /** Why the last run failed. */
  lastError: Schema.NullOr(Schema.String),
  /** Once the state is `completed`. */
  result: Schema.NullOr(ReportResult)
}).annotate({ identifier: "Report" })
export type ReportView = typeof ReportView.Type

export class Reports extends Context.Service<
  Reports,
  {
    /**
     * Asks for the report of these days. The same days again are the same report, as it was computed then: one that was asked for at the
     * same time, too; one whose computation is dead is computed anew. A report lives as long as its task.
     */
    readonly request: (range: ReportRange) => Effect.Effect<TaskId>
    readonly get: (taskId: TaskId) => Effect.Effect<ReportView, ReportNotFound>
  }
>()("paid-once/application/Reports") {
  static readonly layer: Layer.Layer<Reports, never, PgClient.PgClient | Tasks> = Layer.effect(
    Reports,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const tasks = yield* Tasks
      const decode = Schema.decodeUnknownEffect(ReportResult)

      return Reports.of({
        request: Effect.fn("Reports.request")(function* (range) {
          const { isNew, taskId } = yield* tasks
            .enqueue(reportType, range, { idempotencyKey: `${range.from}..${range.to}` })
            .pipe(Transaction.run, Effect.provideService(PgClient.PgClient, client))
          const known = isNew ? undefined : yield* Effect.orDie(tasks.get(taskId))
          if (known?.state === "dead") {
            // Somebody else may have revived it, or it may be done, between the two looks: both are what was asked for.
            yield* Effect.ignore(tasks.retry(taskId, { actor: "POST /reports", reason: "asked for again" }))
          }
          return taskId
        }),
        get: Effect.fn("Reports.get")(function* (taskId) {
          const notFound = new ReportNotFound({ taskId })
          const task = yield* Effect.mapError(tasks.get(taskId), () => notFound)
          if (task.type !== reportType.name) return yield* notFound
          const [row] =
            task.state === "completed"
              ? yield* Effect.orDie(client`
                  SELECT from_day::text AS "from", to_day::text AS "to", totals, csv,
                         to_char(as_of AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "asOf"
                  FROM generated_reports WHERE task_id = ${taskId}::uuid`)
              : []
          const result = row === undefined ? null : yield* Effect.orDie(decode(row))
          return { taskId, state: task.state, lastError: task.lastError, result }
        })
      })
    })
  )
}
