/** The handlers of the API: they call the use cases, and turn results into answers. Failures become problems, here and in `Observe`. */
import { Effect, Layer } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { CancelOrder } from "../application/CancelOrder.ts"
import {
  GatewayWebhook,
  type ReportTooEarly,
  signatureHeader,
  type WebhookRefused
} from "../application/GatewayWebhook.ts"
import type { FinalAnswer, IdempotencyKey, KeyedRequest, KeyReused } from "../application/Idempotency.ts"
import { encodeView, type OrderNotFound, Orders } from "../application/Orders.ts"
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
import * as AdminHandlers from "./admin/AdminHandlers.ts"
import { Api } from "./Api.ts"
import * as Body from "./Body.ts"
import { Caller } from "./access/Caller.ts"
import { Health } from "./Health.ts"
import { HealthApi, live } from "./HealthApi.ts"
import { NewOrderBody, PayBody, type PaymentPending } from "./OrdersApi.ts"
import { maxReportBytes } from "./PaymentsApi.ts"
import { contentType as problemType, Problem, toResponse } from "./Problems.ts"
import * as RequestContext from "./RequestContext.ts"
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
  | ReportTooEarly
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
    case "ReportTooEarly":
      // As long as the first look-up of its recovery may take.
      return new Problem({ status: 503, detail: refusal.message, headers: { "retry-after": "60" } })
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
const keyed = (path: string, key: IdempotencyKey, body: unknown): Effect.Effect<KeyedRequest> =>
  Effect.map(Caller, ({ name }) => ({ caller: name, method: "POST", path, key, body }))

/** A request of a use case that has no parameters. A body is refused: who asks for a part of the amount back must not get all of it. */
const keyedIfAny = (path: string, key: IdempotencyKey | undefined) =>
  Effect.andThen(Body.none, key === undefined ? Effect.succeed(undefined) : keyed(path, key, null))

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
  return json(202, JSON.stringify(pending), {
    location: `/payments/${result.paymentId}`,
    "retry-after": result.status === "manual" ? manualRetrySeconds : paymentRetrySeconds
  })
}

/** The recovery looks an unknown outcome up after five seconds for the first time. */
const paymentRetrySeconds = "5"
/** A person looks after the payment: that takes minutes at least. */
const manualRetrySeconds = "60"
/** A task begins at once, and most take less than a second. */
const taskRetrySeconds = "1"

/** The order after the request: 200, or 202 with the location of a payment that is under way. */
const toOrder = ({ body, paymentId, status }: FinalAnswer, retrySeconds: string) =>
  json(
    status,
    body,
    paymentId === undefined ? undefined : { location: `/payments/${paymentId}`, "retry-after": retrySeconds }
  )

// Made once: a decoder for each request would cost as much as the decoding.
const newOrderBody = Body.decode(NewOrderBody)
const payBody = Body.decode(PayBody)
const reportBody = Body.decode(ReportBody)

const ordersLayer = RequestContext.group(
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
      .handleRaw(
        "place",
        Effect.fnUntraced(function* ({ headers }) {
          const order = yield* newOrderBody
          const key = headers["idempotency-key"]
          const placed = yield* placeOrder.place(order, key && (yield* keyed("/orders", key, order)))
          return json(201, placed.body, { location: `/orders/${placed.orderId}` })
        }, refusing)
      )
      .handleRaw(
        "pay",
        Effect.fnUntraced(function* ({ headers, params }) {
          const body = yield* payBody
          const request = yield* keyed(`/orders/${params.id}/pay`, headers["idempotency-key"], body)
          return toAnswer(params.id, yield* payOrder.pay(params.id, body.paymentMethod, request))
        }, refusing)
      )
      .handleRaw(
        "cancel",
        Effect.fnUntraced(function* ({ headers, params }) {
          const request = yield* keyedIfAny(`/orders/${params.id}/cancel`, headers["idempotency-key"])
          return toOrder(yield* cancelOrder.cancel(params.id, request), paymentRetrySeconds)
        }, refusing)
      )
      .handleRaw(
        "refund",
        Effect.fnUntraced(function* ({ headers, params }) {
          const request = yield* keyedIfAny(`/orders/${params.id}/refund`, headers["idempotency-key"])
          return toOrder(yield* refundOrder.refund(params.id, request), taskRetrySeconds)
        }, refusing)
      )
      .handleRaw("get", ({ params }) =>
        refusing(Effect.map(orders.get(params.id), (order) => json(200, encodeView(order))))
      )
      .handle("list", ({ query }) => orders.list(query))
      .handle("timeline", ({ params, query }) => refusing(timeline.of(params.id, query.cursor)))
  })
)

const paymentsLayer = RequestContext.group(
  Api,
  "payments",
  Effect.fn(function* (handlers) {
    const payments = yield* Payments
    return handlers.handle("get", ({ params }) => refusing(payments.get(params.id)))
  })
)

const reportsLayer = RequestContext.group(
  Api,
  "reports",
  Effect.fn(function* (handlers) {
    const reports = yield* Reports
    return handlers
      .handleRaw(
        "request",
        Effect.fnUntraced(function* () {
          const taskId = yield* reports.request(yield* reportBody)
          const location = `/reports/${taskId}`
          return json(202, JSON.stringify(yield* reports.get(taskId)), { location, "retry-after": taskRetrySeconds })
        }, refusing)
      )
      .handle("get", ({ params }) => refusing(reports.get(params.taskId)))
  })
)

const tasksLayer = RequestContext.group(
  Api,
  "tasks",
  Effect.fn(function* (handlers) {
    const tasks = yield* Tasks
    return handlers.handle("get", ({ params }) => refusing(tasks.get(params.id)))
  })
)

const webhooksLayer = RequestContext.group(
  Api,
  "webhooks",
  Effect.fn(function* (handlers) {
    const webhook = yield* GatewayWebhook
    return handlers.handleRaw(
      "gateway",
      Effect.fnUntraced(function* () {
        const { headers } = yield* HttpServerRequest.HttpServerRequest
        // Anybody may ask: each step costs more than the one before, and is taken only after it.
        const verify = yield* webhook.verifier(headers[signatureHeader] ?? "")
        const bytes = yield* Body.bytes(maxReportBytes)
        yield* verify(bytes)
        const text = yield* Body.textOf(bytes)
        // The gateway has no API key: its signature proves who it is.
        yield* Effect.annotateLogs(webhook.record(text), "caller", "gateway")
        return json(200, JSON.stringify({ received: true }))
      }, refusing)
    )
  })
)

/** As long as the pool takes to reconnect. */
const unreadyRetrySeconds = "2"

/** The handlers of {@link HealthApi}. */
export const healthLayer = RequestContext.group(
  HealthApi,
  "health",
  Effect.fn(function* (handlers) {
    const health = yield* Health
    return handlers
      .handleRaw("live", () => live)
      .handle("ready", () =>
        Effect.map(health.report, (report) =>
          report.status === "unready"
            ? HttpServerResponse.jsonUnsafe(report, { status: 503, headers: { "retry-after": unreadyRetrySeconds } })
            : HttpServerResponse.jsonUnsafe(report)
        )
      )
  })
)

/** The handlers of all groups of {@link Api}. */
export const layer = Layer.mergeAll(
  ordersLayer,
  paymentsLayer,
  reportsLayer,
  tasksLayer,
  webhooksLayer,
  healthLayer,
  AdminHandlers.layer
)
