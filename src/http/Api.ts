/**
 * The HTTP API: its requests, answers and refusals, with a file for each subject. /openapi.json and /docs are generated from it.
 *
 * Bodies and the list's parameters refuse fields that they do not name. Headers and other queries do not: clients and proxies add theirs.
 */
import { HttpApi, OpenApi } from "effect/http-api"
import { adminGroups } from "./admin/AdminApi.ts"
import * as AdminParts from "./admin/AdminParts.ts"
import { HealthGroup } from "./HealthApi.ts"
import { improve } from "./OpenApiSpec.ts"
import { defaultPageSize, maxPageSize, OrdersApi } from "./OrdersApi.ts"
import { PaymentsApi, WebhooksApi } from "./PaymentsApi.ts"
import { RequestProblems } from "./RequestProblems.ts"
import { ReportsApi, TasksApi } from "./TasksApi.ts"

const exampleTime = "2026-07-28T09:30:00.000Z"

/** Types and bounds of parameters. The generated document shows them as text. */
const parameters = {
  limit: {
    type: "integer",
    minimum: 1,
    maximum: maxPageSize,
    default: defaultPageSize,
    description: "Orders a page"
  },
  "idempotency-key": {
    description: "Any text of 1 to 255 characters, for example a UUID: the same key gets the same answer"
  }
}

/** The whole API. */
export const Api = HttpApi.make("paid-once")
  .add(OrdersApi, PaymentsApi, ReportsApi, TasksApi, WebhooksApi, HealthGroup, ...adminGroups)
  .middleware(RequestProblems)
  .annotate(HttpApi.ParamsParseOptions, { errors: "all" })
  .annotate(HttpApi.HeadersParseOptions, { errors: "all" })
  .annotateMerge(
    OpenApi.annotations({
      title: "Paid Once",
      version: "0.1.0",
      license: { name: "MIT", identifier: "MIT" },
      // The server that the document comes from, under whichever name that is.
      servers: [{ url: "/" }],
      transform: improve((path) => (path.startsWith("/admin/") ? AdminParts.parameters : parameters)),
      description:
        "Orders that are paid once, and events that are never lost. Amounts are whole numbers in the currency's minor " +
        `unit; times are ISO 8601 in UTC, for example ${exampleTime}. Everything that is not a success is a problem (RFC 9457).`
    })
  )
