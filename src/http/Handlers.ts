/** The handlers of the API: they call the use cases, and turn results into answers. Failures become problems, here and in `Observe`. */
import { Effect, Layer, Schema } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { CancelOrder } from "../application/CancelOrder.ts"
import { GatewayWebhook, signatureHeader, type WebhookRefused } from "../application/GatewayWebhook.ts"
import type { IdempotencyKey, KeyedRequest, KeyReused } from "../application/Idempotency.ts"
import { type OrderNotFound, Orders, OrderView } from "../application/Orders.ts"
import { type PaymentNotFound, type PaymentOpen, Payments } from "../application/Payments.ts"
import { type PaymentInProgress, PayOrder, type PayResult, type TooManyPayments } from "../application/PayOrder.ts"
import { PlaceOrder } from "../application/PlaceOrder.ts"
import { RefundOrder } from "../application/RefundOrder.ts"
import { type ReportNotFound, Reports } from "../application/Reports.ts"
import { Timeline } from "../application/Timeline.ts"
import type { OrderId } from "../domain/Ids.ts"
import type { OrderStateConflict } from "../domain/Order.ts"
import type { EventRefused } from "../outbox/Outbox.ts"
import { type TaskNotFound, Tasks } from "../tasks/Tasks.ts"
import { Api } from "./Api.ts"
import * as Body from "./Body.ts"
import { Health } from "./Health.ts"
import { HealthApi } from "./HealthApi.ts"
import { NewOrderBody, PayBody, type PaymentPending } from "./OrdersApi.ts"
import { contentType as problemType, Problem, toResponse } from "./Problems.ts"
import { ReportBody } from "./TasksApi.ts"

type Refusal =
  | EventRefused
  | KeyReused
  | OrderNotFound
  | OrderStateConflict
  | PaymentInProgress
  | PaymentNotFound
  | PaymentOpen
  | Problem
  | ReportNotFound
  | TaskNotFound
  | TooManyPayments
  | WebhookRefused

const toProblem = (refusal: Refusal): Problem => {
  switch (refusal._tag) {
    case "Problem":
      return refusal
    case "OrderNotFound":
    case "PaymentNotFound":
    case "ReportNotFound":
    case "TaskNotFound":
      return new Problem({ status: 404, detail: refusal.message })
    case "OrderStateConflict":
    case "PaymentOpen":
      return new Problem({ status: 409, detail: refusal.message })
    case "PaymentInProgress":
      // An attempt ends within the gateway's timeout, and usually in far less than a second.
      return new Problem({ status: 409, detail: refusal.message, headers: { "retry-after": "1" } })
    case "TooManyPayments":
      return new Problem({ status: 503, detail: refusal.message, headers: { "retry-after": "1" } })
    case "WebhookRefused":
      return refusal.isSignature
        ? new Problem({ status: 401, detail: refusal.message })
        : new Problem({ status: 400, detail: refusal.message })
    case "EventRefused":
      return new Problem({ status: 413, detail: refusal.message })
    case "KeyReused":
      return new Problem({
        status: 422,
        detail: refusal.message,
        errors: [{ in: "header", pointer: "/idempotency-key", message: "was already used with another body" }]
      })
  }
}

/** Answers a failure of the use case with its problem. */
const refusing = <A, R>(
  effect: Effect.Effect<A, Refusal, R>
): Effect.Effect<A | HttpServerResponse.HttpServerResponse, never, R> =>
  effect.pipe(Effect.catch((refusal) => Effect.succeed(toResponse(toProblem(refusal)))))

const json = (status: number, body: string, headers?: Readonly<Record<string, string>>) =>
  // The stored text is sent unchanged: a repeated answer is the same byte for byte.
  HttpServerResponse.text(body, {
    status,
    contentType: status === 402 ? problemType : "application/json",
    headers
  })

/** The path is built from the decoded id, so that an order has one path, however the client spelt the id. */
const keyed = (path: string, key: IdempotencyKey, body: unknown): KeyedRequest => ({ method: "POST", path, key, body })

const toAnswer = (orderId: OrderId, result: PayResult) => {
  if (result._tag === "Final") return json(result.answer.status, result.answer.body)
  const pending: typeof PaymentPending.Encoded = {
    paymentId: result.paymentId,
    orderId,
    status: result.status,
    detail:
      result.status === "manual"
        ? "the payment's outcome could not be found out, and a person looks after it: the same Idempotency-Key will tell"
        : "the payment's outcome is not known yet, and is being looked for: ask again with the same Idempotency-Key"
  }
  return json(202, JSON.stringify(pending), { location: `/payments/${result.paymentId}` })
}

const encodeView = Schema.encodeEffect(Schema.fromJsonString(OrderView))

/** The order after the request: 200, or 202 with the location of a payment that is under way. */
const toView = (view: OrderView, payment: string | undefined) =>
  Effect.map(Effect.orDie(encodeView(view)), (body) =>
    payment === undefined ? json(200, body) : json(202, body, { location: `/payments/${payment}` })
  )

const ordersLayer = HttpApiBuilder.group(
  Api,
  "orders",
  Effect.fn(function* (handlers) {
    const orders = yield* Orders
    const placeOrder = yield* PlaceOrder
    const payOrder = yield* PayOrder
    const cancelOrder = yield* CancelOrder
    const refundOrder = yield* RefundOrder
    const timeline = yield* Timeline
    return handlers
      .handleRaw("place", ({ headers }) =>
        refusing(
          Effect.gen(function* () {
            const order = yield* Body.decode(NewOrderBody)
            const key = headers["idempotency-key"]
            const placed = yield* placeOrder.place(order, key && keyed("/orders", key, order))
            return json(201, placed.body, { location: `/orders/${placed.orderId}` })
          })
        )
      )
      .handleRaw("pay", ({ headers, params }) =>
        refusing(
          Effect.gen(function* () {
            const body = yield* Body.decode(PayBody)
            const request = keyed(`/orders/${params.id}/pay`, headers["idempotency-key"], body)
            return toAnswer(params.id, yield* payOrder.pay(params.id, body.paymentMethod, request))
          })
        )
      )
      .handleRaw("cancel", ({ params }) =>
        refusing(Effect.flatMap(cancelOrder.cancel(params.id), ({ inFlight, view }) => toView(view, inFlight)))
      )
      .handleRaw("refund", ({ params }) =>
        refusing(Effect.flatMap(refundOrder.refund(params.id), ({ paymentId, view }) => toView(view, paymentId)))
      )
      .handle("get", ({ params }) => refusing(orders.get(params.id)))
      .handle("list", ({ query }) => orders.list(query))
      .handle("timeline", ({ params }) => refusing(timeline.of(params.id)))
  })
)

const paymentsLayer = HttpApiBuilder.group(
  Api,
  "payments",
  Effect.fn(function* (handlers) {
    const payments = yield* Payments
    return handlers.handle("get", ({ params }) => refusing(payments.get(params.id)))
  })
)

const reportsLayer = HttpApiBuilder.group(
  Api,
  "reports",
  Effect.fn(function* (handlers) {
    const reports = yield* Reports
    return handlers
      .handleRaw("request", () =>
        refusing(
          Effect.gen(function* () {
            const taskId = yield* reports.request(yield* Body.decode(ReportBody))
            const location = `/reports/${taskId}`
            return json(202, JSON.stringify(yield* reports.get(taskId)), { location })
          })
        )
      )
      .handle("get", ({ params }) => refusing(reports.get(params.taskId)))
  })
)

const tasksLayer = HttpApiBuilder.group(
  Api,
  "tasks",
  Effect.fn(function* (handlers) {
    const tasks = yield* Tasks
    return handlers.handle("get", ({ params }) => refusing(tasks.get(params.id)))
  })
)

const webhooksLayer = HttpApiBuilder.group(
  Api,
  "webhooks",
  Effect.fn(function* (handlers) {
    const webhook = yield* GatewayWebhook
    return handlers.handleRaw("gateway", () =>
      refusing(
        Effect.gen(function* () {
          const { headers } = yield* HttpServerRequest.HttpServerRequest
          // The signature covers the exact text.
          yield* webhook.receive(headers[signatureHeader] ?? "", yield* Body.text)
          return json(200, JSON.stringify({ received: true }))
        })
      )
    )
  })
)

/** The handlers of {@link HealthApi}. */
export const healthLayer = HttpApiBuilder.group(
  HealthApi,
  "health",
  Effect.fn(function* (handlers) {
    const health = yield* Health
    return handlers
      .handle("live", () => Effect.succeed({ status: "live" as const }))
      .handle("ready", () =>
        Effect.map(health.report, (report) =>
          HttpServerResponse.jsonUnsafe(report, { status: report.status === "unready" ? 503 : 200 })
        )
      )
  })
)

/** The handlers of all groups of {@link Api}. */
export const layer = Layer.mergeAll(ordersLayer, paymentsLayer, reportsLayer, tasksLayer, webhooksLayer, healthLayer)
