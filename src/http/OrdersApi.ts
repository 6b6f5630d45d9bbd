/** The group `orders` of the API: place, pay, cancel, refund, read. */
import { Effect, Schema, SchemaTransformation } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { IdempotencyKey } from "../application/Idempotency.ts"
import { OrderSummary, OrderView } from "../application/Orders.ts"
import { TimelineView } from "../application/Timeline.ts"
import { CustomerId, OrderId, PaymentId } from "../domain/Ids.ts"
import { Currency } from "../domain/Money.ts"
import { OrderStatus } from "../domain/Order.ts"
import { OrderLines } from "../domain/OrderLines.ts"
import { PaymentMethod } from "../domain/Payment.ts"
import { declined, exampleOrderId, problems, uuidV7, withLocation } from "./ApiParts.ts"

const examplePaymentId = "01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b11"
const exampleLines = [{ sku: "book-42", quantity: 2, unitAmountMinor: 1_250 }]

/** An order's id, in a path. */
export const OrderIdText = uuidV7("The order's id").pipe(Schema.decodeTo(OrderId, SchemaTransformation.toLowerCase()))

/** An idempotency key in a header, without control characters. HTTP's parser lets a tab pass, and the C1 controls as Latin-1. */
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

/** Bounds a page to 150 kilobytes: 1,200 of an order's bytes are a customer's id of 200 escaped characters. Usual pages take thirty. */
export const maxPageSize = 100
/** Twenty orders fill a screen. */
export const defaultPageSize = 20
const limitMessage = `must be a whole number between 1 and ${maxPageSize}`

/** Digits alone: JavaScript's own reading of a number takes 0x10, 1e1 and blanks, too. */
const Limit = Schema.String.check(Schema.isPattern(/^[1-9]\d{0,2}$/, { message: limitMessage }))
  .pipe(
    Schema.decodeTo(
      Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: maxPageSize }, { message: limitMessage })),
      SchemaTransformation.numberFromString
    )
  )
  .pipe(Schema.withDecodingDefaultKey(Effect.succeed(String(defaultPageSize))))

const cursorMessage = "must be a version: the nextCursor of the page before"

/** A version of an order. It leaves room for a page below the largest integer of Postgres. */
const VersionCursor = Schema.String.check(Schema.isPattern(/^(0|[1-9]\d{0,8})$/, { message: cursorMessage })).pipe(
  Schema.decodeTo(Schema.Int, SchemaTransformation.numberFromString),
  Schema.withDecodingDefaultKey(Effect.succeed("0"))
)

/** The query of `GET /orders`. */
const ListQuery = {
  status: Schema.OptionFromOptionalKey(
    OrderStatus.annotate({ message: `must be one of ${OrderStatus.literals.join(", ")}` })
  ),
  limit: Limit,
  cursor: Schema.OptionFromOptionalKey(OrderIdText)
}

const OrderList = Schema.Struct({ items: Schema.Array(OrderSummary), nextCursor: Schema.NullOr(OrderId) }).annotate({
  identifier: "OrderList",
  description: "Newest first, without the orders' lines. `nextCursor` is null on the last page."
})

/** The answer 202 of a payment whose outcome is not known yet. */
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

export const OrdersApi = HttpApiGroup.make("orders")
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
          description:
            "Without the orders' lines: `GET /orders/{id}` has them. Pass a page's `nextCursor` as `cursor` to get the next one."
        })
      )
      .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" }),
    HttpApiEndpoint.post("pay", "/orders/:id/pay", {
      params: { id: OrderIdText },
      headers: { "idempotency-key": KeyHeader },
      payload: PayBody,
      success: [OrderView, withLocation(PaymentPending.annotate({ httpApiStatus: 202 }), "payment")],
      error: [declined, ...problems(400, 404, 409, 413, 415, 422, 503)]
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
      headers: { "idempotency-key": Schema.optionalKey(KeyHeader) },
      success: [OrderView, withLocation(OrderView.annotate({ httpApiStatus: 202 }), "payment")],
      error: problems(400, 404, 409, 413, 422, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Cancel an order",
        description:
          "The order is `cancelled` at once. 202: a payment of it is in flight; if its money arrives, it is given back. " +
          "409: the order is paid, and can only be refunded. May be repeated; with an `Idempotency-Key` the repeated request gets the " +
          "first answer byte for byte, whatever has become of the order."
      })
    ),
    HttpApiEndpoint.post("refund", "/orders/:id/refund", {
      params: { id: OrderIdText },
      headers: { "idempotency-key": Schema.optionalKey(KeyHeader) },
      success: withLocation(OrderView.annotate({ httpApiStatus: 202 }), "payment"),
      error: problems(400, 404, 409, 413, 422, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Refund a paid order",
        description:
          "The whole amount. The order reads `refunding` until the gateway has confirmed, and then `refunded`. 409: the order is not paid. " +
          "May be repeated while the refund is under way; with an `Idempotency-Key` the repeated request gets the first answer byte for " +
          "byte, also after the refund."
      })
    ),
    HttpApiEndpoint.get("timeline", "/orders/:id/timeline", {
      params: { id: OrderIdText },
      query: { cursor: VersionCursor },
      success: TimelineView,
      error: problems(400, 404, 503)
    })
      .annotateMerge(
        OpenApi.annotations({
          summary: "Get an order's events",
          description:
            "Each event, how far its delivery has come, and which subscribers have applied it: a hundred versions a page, the oldest first. " +
            "Pass a page's `nextCursor` as `cursor` to get the next one; it is null on the last page."
        })
      )
      .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  )
  .annotateMerge(OpenApi.annotations({ title: "Orders", description: "Place, pay and follow orders." }))
