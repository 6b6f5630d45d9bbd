/** The groups `tasks` and `reports` of the API: work that goes on after the request. */
import { SchemaTransformation, Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ReportView } from "../application/Reports.ts"
import { ReportRange } from "../application/tasks/Report.ts"
import { TaskView } from "../tasks/TaskRows.ts"
import { TaskId } from "../tasks/TaskType.ts"
import { problems, uuidV7, withLocation } from "./ApiParts.ts"

/** A task's id in a path or query. */
export const TaskIdText = uuidV7("The task's id").pipe(Schema.decodeTo(TaskId, SchemaTransformation.toLowerCase()))

/** The body of `POST /reports`. */
export const ReportBody = ReportRange.annotate({
  identifier: "ReportRange",
  examples: [{ from: "2026-01-01", to: "2026-03-31" }]
})

export const ReportsApi = HttpApiGroup.make("reports")
  .add(
    HttpApiEndpoint.post("request", "/reports", {
      payload: ReportBody,
      success: withLocation(ReportView.annotate({ httpApiStatus: 202 }), "report"),
      error: problems(400, 413, 415, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Ask for a revenue report",
        description:
          "What was captured and refunded from `from` to `to`, UTC days that both count. It is computed in the background: follow " +
          "`Location`. The same days again are the same report, as of when it was computed (`asOf`)."
      })
    ),
    HttpApiEndpoint.get("get", "/reports/:taskId", {
      params: { taskId: TaskIdText },
      success: ReportView,
      error: problems(400, 404, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Get a revenue report",
        description: "`result` is there once `state` is `completed`: totals by currency, and a CSV by day and currency."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Reports", description: "Revenue by day and currency." }))

export const TasksApi = HttpApiGroup.make("tasks")
  .add(
    HttpApiEndpoint.get("get", "/tasks/:id", {
      params: { id: TaskIdText },
      success: TaskView,
      error: problems(400, 404, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Get a task",
        description: "How far it is: its state, the runs begun, when it may run next, and why the last runs failed."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Tasks", description: "Work that goes on after the request." }))
