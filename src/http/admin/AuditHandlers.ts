/** The handlers of `AuditApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { AuditReport } from "../../operations/reports/AuditReport.ts"
import { Api } from "../Api.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "adminAudit",
  Effect.fn(function* (handlers) {
    const { list } = yield* AuditReport
    return handlers.handle("list", ({ query }) => list(query, query))
  })
)
