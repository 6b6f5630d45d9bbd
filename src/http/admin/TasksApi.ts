/** The group of the tasks: durable work that waits, fails or has died. */
import { Schema } from "effect"
import { HttpApi, HttpApiGroup, OpenApi } from "effect/http-api"
import { AskedState, Cause, Count, Details, Listed, Retried, State } from "../../operations/reports/TaskReport.ts"
import { Handled } from "../../tasks/Tasks.ts"
import { TaskIdText } from "../TasksApi.ts"
import {
  bulkBody,
  causesOf,
  causesQuery,
  deciding,
  FilterText,
  oneOf,
  pageOf,
  pageQuery,
  PreviewAnswer,
  reading,
  ReasonBody,
  since
} from "./AdminParts.ts"

const filter = { type: Schema.optionalKey(FilterText), cause: Schema.optionalKey(FilterText) }

/** The body of `POST /admin/tasks/retry`. */
export const TasksRetryBody = bulkBody({ ...filter, ...since }, "RetryTasks")

const handled = {
  params: { id: TaskIdText },
  payload: ReasonBody,
  success: Schema.Struct({ ...Handled.fields, state: State }).annotate({ identifier: "HandledTask" })
}

export const AdminTasksApi = HttpApiGroup.make("adminTasks")
  .add(
    reading("list", "/admin/tasks", {
      query: { state: Schema.optionalKey(oneOf(AskedState.literals)), ...filter, ...pageQuery(TaskIdText) },
      success: pageOf(Listed, "TaskPage"),
      summary: "List tasks",
      description:
        "Without `state` those that are not finished, and the dead ones. `failed` means `retrying`. Payloads are not shown."
    }),
    reading("counts", "/admin/tasks/counts", {
      success: Schema.Struct({ items: Schema.Array(Count.annotate({ identifier: "TaskCount" })) }).annotate({
        identifier: "TaskCounts"
      }),
      summary: "Count tasks by type and state",
      description: "Those that are not finished, and the dead ones. Each count stops at 100000."
    }),
    reading("causes", "/admin/tasks/causes", {
      query: { ...filter, ...causesQuery },
      success: causesOf(Cause.annotate({ identifier: "TaskCause" }), "TaskCauses"),
      summary: "Group retrying and dead tasks by cause"
    }),
    deciding("retryAll", "/admin/tasks/retry", {
      payload: TasksRetryBody,
      success: Schema.Union([
        Schema.Struct({ preview: Schema.Literal(false), ...Retried.fields }).annotate({ identifier: "TasksRetried" }),
        PreviewAnswer
      ]),
      summary: "Run all dead tasks that match anew",
      description:
        "Those that are dead when it begins. An empty filter takes all. `preview: true` says what it would do, and changes nothing."
    }),
    reading("show", "/admin/tasks/:id", {
      params: { id: TaskIdText },
      success: Details.annotate({ identifier: "TaskDetails" }),
      summary: "Get all that is known of a task, but its payload"
    }),
    deciding("retry", "/admin/tasks/:id/retry", {
      ...handled,
      summary: "Run a task",
      description: "A dead or cancelled task begins anew, with all its attempts. A waiting one becomes due now."
    }),
    deciding("cancel", "/admin/tasks/:id/cancel", {
      ...handled,
      summary: "Cancel a task",
      description:
        "A running task is stopped by its worker's next heartbeat. A payment whose recovery is cancelled becomes manual."
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(
    OpenApi.annotations({ title: "Admin: tasks", description: "Durable work that waits, fails or has died." })
  )
