/** Revenue reports: requested, computed by a task, fetched once they are ready. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema, SchemaTransformation } from "effect"
import { SumMinor } from "../domain/Money.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { TaskId, TaskState } from "../tasks/TaskType.ts"
import { Figures, type ReportRange, ReportResult, reportType } from "./tasks/Report.ts"

/** There is no report with this id, or it was deleted after its retention. */
export class ReportNotFound extends Schema.TaggedError<ReportNotFound>()("ReportNotFound", { taskId: TaskId }) {
  override get message() {
    return `there is no report ${this.taskId}`
  }
}

/** A report and its progress. */
export const ReportView = Schema.Struct({
  taskId: TaskId,
  state: TaskState,
  /** Why the last run failed. */
  lastError: Schema.NullOr(Schema.String),
  /** Once the state is `completed`. */
  result: Schema.NullOr(ReportResult)
}).annotate({ identifier: "Report" })
export type ReportView = typeof ReportView.Type

/** A sum as it is stored: an older report has a number. */
const StoredSum = Schema.Union([Schema.String, Schema.Number]).pipe(
  Schema.decodeTo(
    SumMinor,
    SchemaTransformation.transform<string, string | number>({ decode: String, encode: (sum) => sum })
  )
)

const StoredResult = Schema.Struct({
  ...ReportResult.fields,
  totals: Schema.Array(
    Schema.Struct({ ...Figures.fields, capturedMinor: StoredSum, refundedMinor: StoredSum, netMinor: StoredSum })
  )
})

export class Reports extends Context.Service<
  Reports,
  {
    /**
     * Requests the report of these days. A repeated request for the same days, a concurrent one too, gets the same report, as of when it was
     * computed. A report whose task is dead is computed again. A report is kept as long as its task.
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
      const decode = Schema.decodeUnknownEffect(StoredResult)

      return Reports.of({
        request: Effect.fn("Reports.request")(function* (range) {
          const { isNew, taskId } = yield* tasks
            .enqueue(reportType, range, { idempotencyKey: `${range.from}..${range.to}` })
            .pipe(Transaction.run, Effect.provideService(PgClient.PgClient, client))
          const known = isNew ? undefined : yield* Effect.orDie(tasks.get(taskId))
          if (known?.state === "dead") {
            // Another request may have revived the task in between, or it may have completed: both are fine.
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
