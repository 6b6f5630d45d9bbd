/** The handlers of `TasksApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { shown, TaskReport, unfinished } from "../../operations/reports/TaskReport.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { Api } from "../Api.ts"
import { answering, decide, decideAll } from "./AdminAnswers.ts"
import { ReasonBody } from "./AdminParts.ts"
import { KnownNames } from "./KnownNames.ts"
import { TasksRetryBody } from "./TasksApi.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "adminTasks",
  Effect.fn(function* (handlers) {
    const known = yield* KnownNames
    const report = yield* TaskReport
    const tasks = yield* Tasks
    return handlers
      .handle("list", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("task type", { in: "query", pointer: "/type" }, query.type),
            report.list(query.state === undefined ? unfinished : [query.state], query, query)
          )
        )
      )
      .handle("counts", () => Effect.map(report.counts, (items) => ({ items })))
      .handle("causes", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("task type", { in: "query", pointer: "/type" }, query.type),
            Effect.map(report.causes(query, query.limit), (items) => ({ items }))
          )
        )
      )
      .handleRaw("retryAll", () =>
        decideAll(TasksRetryBody, {
          check: ({ type }) => known.inFilter("task type", { in: "body", pointer: "/filter/type" }, type),
          preview: report.preview,
          act: report.retryAll
        })
      )
      .handle("show", ({ params }) => answering(report.show(params.id)))
      .handleRaw("retry", ({ params }) =>
        decide(ReasonBody, (operator) => Effect.map(tasks.retry(params.id, operator), shown))
      )
      .handleRaw("cancel", ({ params }) =>
        decide(ReasonBody, (operator) => Effect.map(tasks.cancel(params.id, operator), shown))
      )
  })
)
