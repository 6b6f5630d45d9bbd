/**
 * The HTTP API: what can be asked, what comes back, and what is refused. /openapi.json and /docs are made of it.
 *
 * Bodies and the list's parameters refuse what they do not name; headers and other queries do not, for clients and proxies add
 * theirs.
 */
import { OrderLines } from "../domain/OrderLines.ts"
import { CustomerId, OrderId, PaymentId } from "../domain/Ids.ts"
import { Effect, Schema, SchemaTransformation } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { IdempotencyKey } from "../application/Idempotency.ts"
import { OrderView } from "../application/Orders.ts"
import { ReportView } from "../application/Reports.ts"
import { ReportRange } from "../application/tasks/Report.ts"
import { TimelineView } from "../application/Timeline.ts"
import { Currency } from "../domain/Money.ts"
import { OrderStatus } from "../domain/Order.ts"
import { Payment, PaymentMethod } from "../domain/Payment.ts"
import { TaskView } from "../tasks/TaskRows.ts"
import { TaskId } from "../tasks/TaskType.ts"
import { HealthReport } from "./Health.ts"
import { improve } from "./OpenApiSpec.ts"
import { contentType as problemType } from "./Problems.ts"
import { RequestProblems } from "./RequestProblems.ts"

const exampleOrderId = "01890a5d-ac96-774b-bcce-b302099a8057"
const examplePaymentId = "01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b11"
const exampleTime = "2026-07-28T09:30:00.000Z"
const exampleLines = [{ sku: "book-42", quantity: 2, unitAmountMinor: 1_250 }]

/**
 * An id of a path or query: a UUID version 7. Read in lower case, as the database writes it: RFC 9562 lets a client send capitals,
 * and the same order must not have two names where a name is compared as text (idempotency keys, timelines).
 */
const uuidV7 = (description: string) =>
  Schema.String.check(Schema.isUUID(7, { message: "must be a UUID of version 7", description }))

const OrderIdText = uuidV7("The order's id").pipe(Schema.decodeTo(OrderId, SchemaTransformation.toLowerCase()))
const TaskIdText = uuidV7("The task's id").pipe(Schema.decodeTo(TaskId, SchemaTransformation.toLowerCase()))
const PaymentIdText = uuidV7("The payment's id").pipe(Schema.decodeTo(PaymentId, SchemaTransformation.toLowerCase()))

/** A key as it may stand in a header: a tab gets through HTTP's own parser, and the C1 controls do as Latin-1. */
const KeyHeader = IdempotencyKey.check(
  Schema.makeFilter(
    // oxlint-disable-next-line no-control-regex -- to refuse them
    (key: string) => !/[\u0000-\u001f\u007f-\u009f]/.test(key) || "must not contain control characters"
  )
)

/** The body of `POST /orders`. */
export const NewOrderBody = Schema.Struct({
  customerId: CustomerId,
  currency: Currency,
  lines: OrderLines
}).annotate({
  identifier: "NewOrder",
  examples: [
    {
      customerId: CustomerId.make("customer-7"),
      currency: Currency.make("EUR"),
      lines: exampleLines.map((line) => ({ ...line, sku: line.sku as never }))
    }
  ]
})

/** The body of `POST /orders/{id}/pay`. */
export const PayBody = Schema.Struct({ paymentMethod: PaymentMethod }).annotate({
  identifier: "Pay",
  examples: [{ paymentMethod: PaymentMethod.make("pm_ok") }]
})

/** The body of `POST /reports`. */
export const ReportBody = ReportRange.annotate({
  identifier: "ReportRange",
  examples: [{ from: "2026-01-01", to: "2026-03-31" }]
})

/** The most orders a page may have: with 1,000 lines each it is some ten megabytes, and usually it is fifty kilobytes. */
export const maxPageSize = 100
/** Twenty orders fill a screen. */
const defaultPageSize = 20
const limitMessage = `must be a whole number between 1 and ${maxPageSize}`

const Limit = Schema.NumberFromString.annotate({ message: limitMessage })
  .check(
    Schema.isInt({ message: limitMessage }),
    Schema.isBetween({ minimum: 1, maximum: maxPageSize }, { message: limitMessage })
  )
  .pipe(Schema.withDecodingDefaultKey(Effect.succeed(String(defaultPageSize))))

/** The query of `GET /orders`. */
const ListQuery = {
  status: Schema.OptionFromOptionalKey(
    OrderStatus.annotate({ message: `must be one of ${OrderStatus.literals.join(", ")}` })
  ),
  limit: Limit,
  cursor: Schema.OptionFromOptionalKey(OrderIdText)
}

const OrderList = Schema.Struct({ items: Schema.Array(OrderView), nextCursor: Schema.NullOr(OrderId) }).annotate({
  identifier: "OrderList",
  description: "Newest first. `nextCursor` is null on the last page."
})

/** The answer 202 of a payment whose outcome the gateway has not told. */
export const PaymentPending = Schema.Struct({
  paymentId: PaymentId,
  orderId: OrderId,
  status: Schema.Literals(["charging", "manual"]),
  detail: Schema.String
}).annotate({
  identifier: "PaymentPending",
  examples: [
    {
      paymentId: PaymentId.make(examplePaymentId),
      orderId: OrderId.make(exampleOrderId),
      status: "charging",
      detail: "the payment's outcome is not known yet, and is being looked for: ask again with the same Idempotency-Key"
    }
  ]
})

const ProblemBody = Schema.Struct({
  type: Schema.String,
  title: Schema.String,
  status: Schema.Int,
  detail: Schema.String,
  errors: Schema.optionalKey(
    Schema.Array(
      Schema.Struct({
        in: Schema.Literals(["body", "path", "query", "header"]),
        pointer: Schema.String.annotate({ description: "JSON Pointer (RFC 6901) to the field" }),
        message: Schema.String
      })
    )
  )
}).annotate({
  identifier: "Problem",
  description: "RFC 9457. `errors` names every wrong field.",
  examples: [
    {
      type: "about:blank",
      title: "Bad Request",
      status: 400,
      detail: "the request is not valid: body /lines/0/quantity must be a whole number between 1 and 1000000",
      errors: [{ in: "body", pointer: "/lines/0/quantity", message: "must be a whole number between 1 and 1000000" }]
    }
  ]
})

const problem = (status: number) =>
  ProblemBody.pipe(HttpApiSchema.asJson({ contentType: problemType }), HttpApiSchema.status(status))
const problems = (...statuses: ReadonlyArray<number>) => statuses.map(problem)

const withLocation = <S extends Schema.Top>(schema: S, of: string) =>
  HttpApiSchema.WithHeaders(schema, { location: Schema.String.annotate({ description: `The path of the ${of}` }) })

const Orders = HttpApiGroup.make("orders")
  .add(
    HttpApiEndpoint.post("place", "/orders", {
      headers: { "idempotency-key": Schema.optionalKey(KeyHeader) },
      payload: NewOrderBody,
      success: withLocation(OrderView.annotate({ httpApiStatus: 201 }), "order"),
      error: problems(400, 413, 415, 422, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Place an order",
        description:
          "The order is `pending`, version 1. With an `Idempotency-Key` the same request, sent again, gets the same answer " +
          "byte for byte and places nothing; the key with another body is refused with 422."
      })
    ),
    HttpApiEndpoint.get("get", "/orders/:id", {
      params: { id: OrderIdText },
      success: OrderView,
      error: problems(400, 404, 503)
    }).annotateMerge(OpenApi.annotations({ summary: "Get an order" })),
    HttpApiEndpoint.get("list", "/orders", {
      query: ListQuery,
      success: OrderList,
      error: problems(400, 503)
    })
      .annotateMerge(
        OpenApi.annotations({
          summary: "List orders, newest first",
          description: "Pass a page's `nextCursor` as `cursor` to get the next one."
        })
      )
      .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" }),
    HttpApiEndpoint.post("pay", "/orders/:id/pay", {
      params: { id: OrderIdText },
      headers: { "idempotency-key": KeyHeader },
      payload: PayBody,
      success: [OrderView, withLocation(PaymentPending.annotate({ httpApiStatus: 202 }), "payment")],
      error: problems(400, 402, 404, 409, 413, 415, 422, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Pay an order",
        description:
          "200: paid. 202: the gateway has not told the outcome, and it is being looked for; ask again with the same key until it is known. 402: declined; " +
          "a new key may try again. 409: another payment is open, the order can't be paid, or the same key is being processed. " +
          "200 and 402 are kept: the same key gets them again, byte for byte, and is never charged twice."
      })
    ),
    HttpApiEndpoint.post("cancel", "/orders/:id/cancel", {
      params: { id: OrderIdText },
      success: [OrderView, withLocation(OrderView.annotate({ httpApiStatus: 202 }), "payment")],
      error: problems(400, 404, 409, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Cancel an order",
        description:
          "The order is `cancelled` at once. 202: a payment of it is in flight; if its money arrives, it is given back. " +
          "409: the order is paid, and can only be refunded. May be repeated."
      })
    ),
    HttpApiEndpoint.post("refund", "/orders/:id/refund", {
      params: { id: OrderIdText },
      success: withLocation(OrderView.annotate({ httpApiStatus: 202 }), "payment"),
      error: problems(400, 404, 409, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Refund a paid order",
        description:
          "The whole amount. The order reads `refunding` until the gateway has confirmed, and then `refunded`. 409: the order is not paid. " +
          "May be repeated while the refund is under way."
      })
    ),
    HttpApiEndpoint.get("timeline", "/orders/:id/timeline", {
      params: { id: OrderIdText },
      success: TimelineView,
      error: problems(400, 404, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Get an order's events",
        description: "Each event, how far its delivery has come, and which subscribers have applied it."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Orders", description: "Place, pay and follow orders." }))

const Payments = HttpApiGroup.make("payments")
  .add(
    HttpApiEndpoint.get("get", "/payments/:id", {
      params: { id: PaymentIdText },
      success: Payment,
      error: problems(400, 404, 503)
    }).annotateMerge(OpenApi.annotations({ summary: "Get a payment" }))
  )
  .annotateMerge(OpenApi.annotations({ title: "Payments", description: "Attempts to pay an order." }))

const Reports = HttpApiGroup.make("reports")
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
  .annotateMerge(OpenApi.annotations({ title: "Reports" }))

const Tasks = HttpApiGroup.make("tasks")
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

const Webhooks = HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.post("gateway", "/webhooks/gateway", {
      payload: Schema.Struct({ id: Schema.String, type: Schema.String, key: Schema.String }).annotate({
        identifier: "GatewayReport"
      }),
      success: Schema.Struct({ received: Schema.Literal(true) }),
      error: problems(400, 401, 413, 415, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Hear what the gateway did",
        description:
          "For the payment gateway: the header `gateway-signature` is `t=<Unix seconds>,v1=<hex>`, HMAC-SHA256 of `<t>.<body>` under the shared " +
          "secret. A report may come first, last, twice, or speak of a payment that is unknown here: all are answered 200."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Webhooks" }))

const Health = HttpApiGroup.make("health")
  .add(
    HttpApiEndpoint.get("live", "/health/live", {
      success: Schema.Struct({ status: Schema.Literal("live") })
    }).annotateMerge(OpenApi.annotations({ summary: "Whether the process answers" })),
    HttpApiEndpoint.get("ready", "/health/ready", {
      success: HealthReport,
      error: HealthReport.annotate({ httpApiStatus: 503 })
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Whether the process can serve",
        description:
          "`degraded` still takes orders: events wait in the outbox while the broker is away. `unready` is 503. " +
          "The parts are those of the roles that this process has."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Health" }))

/** What a process that takes no requests answers beside /metrics. Its name is the whole API's: the handlers are the same. */
export const HealthApi = HttpApi.make("paid-once").add(Health).middleware(RequestProblems)

/** The whole API. */
export const Api = HttpApi.make("paid-once")
  .add(Orders, Payments, Reports, Tasks, Webhooks, Health)
  .middleware(RequestProblems)
  .annotate(HttpApi.ParamsParseOptions, { errors: "all" })
  .annotate(HttpApi.HeadersParseOptions, { errors: "all" })
  .annotateMerge(
    OpenApi.annotations({
      title: "Paid Once",
      version: "0.1.0",
      transform: improve({
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
      }),
      description:
        "Orders that are paid once, and events that are never lost. Amounts are whole numbers in the currency's minor " +
        `unit; times are ISO 8601 in UTC, for example ${exampleTime}. Everything that is not a success is a problem (RFC 9457).`
    })
  )
