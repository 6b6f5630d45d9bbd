/**
 * The clients' requests to the service: place an order, pay it, and decline it (a short transaction of a third kind). A request keeps its
 * answer, so that the oracle can compare it with the tables.
 */
import { Sku } from "../../src/domain/OrderLines.ts"
import { CustomerId, OrderId, PaymentId } from "../../src/domain/Ids.ts"
import type { PgClient } from "@effect/sql-pg"
import { Data, Effect, Exit, Result } from "effect"
import type { SqlClient } from "effect/sql"
import { Idempotency, IdempotencyKey } from "../../src/application/Idempotency.ts"
import { Orders } from "../../src/application/Orders.ts"
import type { CancelOrder } from "../../src/application/CancelOrder.ts"
import type { GatewayWebhook } from "../../src/application/GatewayWebhook.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import type { RefundOrder } from "../../src/application/RefundOrder.ts"
import { Currency } from "../../src/domain/Money.ts"
import { type Change, declinePayment } from "../../src/domain/Order.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"
import type { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import type { Tasks } from "../../src/tasks/Tasks.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import type { Answer, Refusal, Violation } from "./Oracle.ts"

/** The orders of a case. All sums of their amounts differ, so a wrong total shows which order is missing. */
export const orderLetters = ["A", "B", "C"] as const
const amounts = [100, 230, 710] as const

/** The letter of the order with that amount. */
export const letterOf = (amountMinor: number): string =>
  orderLetters[(amounts as ReadonlyArray<number>).indexOf(amountMinor)] ?? "?"

export const methods = ["pm_ok", "pm_declined", "pm_timeout_then_captured", "pm_timeout_then_nothing"] as const

/** The service's answer: a final one, a refusal, another end of the request, or that it is to be repeated. */
type Heard =
  | { readonly _tag: "Answer"; readonly answer: Answer }
  | ({ readonly _tag: "Refused" } & Refusal)
  | { readonly _tag: "Done" }
  /** `waitsFor`: the payment whose outcome is unknown. */
  | { readonly _tag: "Again"; readonly waitsFor?: string }

/** The services of a client process. */
export type ClientServices =
  | InboxDeadLetters
  | OutboxDeadLetters
  | PlaceOrder
  | PayOrder
  | CancelOrder
  | RefundOrder
  | GatewayWebhook
  | Orders
  | Idempotency
  | Tasks
  | PgClient.PgClient
  | SqlClient.SqlClient

/** A request as its sender sees it: repeated with the same key until it is answered. */
export interface Request {
  readonly title: string
  readonly order: number
  readonly isPlace: boolean
  readonly send: Effect.Effect<unknown, unknown, ClientServices>
  answered: boolean
  /** The payment whose unknown outcome the last answer named. */
  waitsFor: string | undefined
  /** The last refusal that named the order's status. */
  refusal: Refusal | undefined
  /** The final answer. Every later answer to the request must equal it. */
  answer: Answer | undefined
  /** Takes an answer. Returns a violation if a client must never get that answer. */
  readonly take: (exit: Exit.Exit<unknown, unknown>) => Violation | undefined
}

/** A request with a key has one final answer, the same byte for byte. A request without a key is answered by the present state. */
export const make = (
  title: string,
  order: number,
  isPlace: boolean,
  send: Effect.Effect<Heard, unknown, ClientServices>,
  { isKeyed }: { readonly isKeyed: boolean } = { isKeyed: true }
): Request => {
  const request: Request = {
    title,
    order,
    isPlace,
    send,
    answered: false,
    waitsFor: undefined,
    refusal: undefined,
    answer: undefined,
    take: (exit) => {
      if (!Exit.isSuccess(exit)) return undefined
      const heard = exit.value as Heard
      if (heard._tag === "Again") {
        request.waitsFor = heard.waitsFor ?? request.waitsFor
        return undefined
      }
      request.answered = true
      if (heard._tag === "Refused") request.refusal = heard
      const text = heard._tag === "Answer" ? heard.answer.text : "with a refusal"
      if (isKeyed && request.answer !== undefined && request.answer.text !== text) {
        return {
          invariant: "the same key gets the same answer",
          detail: `"${title}" was answered ${request.answer.text}, and then ${text}`
        }
      }
      if (heard._tag === "Answer") request.answer = heard.answer
      return undefined
    }
  }
  return request
}

const keyOf = (number: number) => IdempotencyKey.make(`request-${number}`)

/** Orders whose id clients know, since their placing was answered. */
export type KnownOrders = Map<number, OrderId>

export const place = (number: number, order: number, known: KnownOrders): Request =>
  make(
    `place order ${orderLetters[order]}`,
    order,
    true,
    Effect.gen(function* () {
      const body = {
        customerId: CustomerId.make(orderLetters[order]!),
        currency: Currency.make("EUR"),
        lines: [{ sku: Sku.make("thing"), quantity: 1, unitAmountMinor: amounts[order]! }]
      }
      const placed = yield* (yield* PlaceOrder).place(body, {
        caller: "anonymous",
        method: "POST",
        path: "/orders",
        key: keyOf(number),
        body
      })
      known.set(order, placed.orderId)
      return {
        _tag: "Answer",
        answer: { says: "placed", order: placed.orderId, payment: undefined, text: placed.body }
      }
    })
  )

/** A request for an order is not sent before the client knows the order's id. */
class UnknownOrder extends Data.TaggedError("UnknownOrder") {
  override readonly message = "nobody knows its id yet"
}

export const idOf = (order: number, known: KnownOrders) =>
  Effect.suspend(() => {
    const id = known.get(order)
    return id === undefined ? Effect.fail(new UnknownOrder()) : Effect.succeed(id)
  })

type Method = (typeof methods)[number]

const titles: Readonly<Record<Method, string>> = {
  pm_ok: "",
  pm_declined: " (will be declined)",
  pm_timeout_then_captured: " (the gateway's first answer gets lost)",
  pm_timeout_then_nothing: " (the gateway's first try gets lost)"
}

const sendPay = Effect.fnUntraced(function* (id: OrderId, number: number, method: string) {
  const request = {
    caller: "anonymous",
    method: "POST",
    path: `/orders/${id}/pay`,
    key: keyOf(number),
    body: { paymentMethod: method }
  }
  return yield* Effect.result((yield* PayOrder).pay(id, PaymentMethod.make(method), request))
})

export const pay = (number: number, order: number, method: Method, known: KnownOrders): Request =>
  make(
    `pay order ${orderLetters[order]}${titles[method]}`,
    order,
    false,
    Effect.gen(function* () {
      const id = yield* idOf(order, known)
      const result = yield* sendPay(id, number, method)
      if (Result.isSuccess(result)) {
        // An unknown outcome is requested again.
        if (result.success._tag === "Unknown") return { _tag: "Again", waitsFor: result.success.paymentId }
        const { answer, paymentId } = result.success
        const says = answer.status === 200 ? "paid" : "declined"
        return {
          _tag: "Answer",
          answer: { says, order: id, payment: paymentId, text: `${answer.status} ${answer.body}` }
        }
      }
      switch (result.failure._tag) {
        case "PaymentInProgress":
          return { _tag: "Again" }
        case "PaymentOpen":
          return { _tag: "Done" }
        case "OrderStateConflict":
          return { _tag: "Refused", order: id, status: result.failure.status }
        // Other failures are impossible: the order exists, and the key was never used with another body.
        default:
          return yield* Effect.die(result.failure)
      }
    })
  )

/** The request's key with another body. The service refuses it if it knows the key; before that it is not sent. */
export const otherBody = (number: number, request: Request, known: KnownOrders): Request =>
  make(
    `${request.title.split(" (")[0]} another way, with the key of a request before`,
    request.order,
    false,
    Effect.gen(function* () {
      if (request.answer?.says !== "paid" && request.answer?.says !== "declined") return { _tag: "Done" }
      const result = yield* sendPay(yield* idOf(request.order, known), number, "pm_other")
      return Result.isFailure(result) && result.failure._tag === "KeyReused"
        ? { _tag: "Done" }
        : yield* Effect.die(new Error("one key was taken for two bodies"))
    })
  )

/**
 * A short use case of the same form as cancelling or refunding: claim the key, lock the order, save it with one or two events. Two of them
 * on one order make writers of one aggregate wait for each other.
 */
export const decline = (number: number, order: number, events: 1 | 2, known: KnownOrders): Request =>
  make(
    `note ${events === 1 ? "a decline" : "two declines"} on order ${orderLetters[order]}`,
    order,
    false,
    Effect.gen(function* () {
      const id = yield* idOf(order, known)
      const [orders, idempotency] = [yield* Orders, yield* Idempotency]
      const subjectOf = (event: number) => `0000000${event}-0000-7000-8000-${String(number).padStart(12, "0")}`
      yield* Transaction.run(
        Effect.gen(function* () {
          const key = yield* idempotency.claim(
            {
              caller: "anonymous",
              method: "POST",
              path: `/orders/${id}/decline`,
              key: keyOf(number),
              body: {}
            },
            subjectOf(0)
          )
          if (key._tag !== "First") return
          const locked = yield* orders.lock(OrderId.make(id))
          const change = declinePayment(locked, PaymentId.make(subjectOf(0)), "noted")
          // A paid order can't be declined; the key is used nevertheless.
          if (Result.isFailure(change)) return
          const second = declinePayment(locked, PaymentId.make(subjectOf(1)), "noted")
          const both: Change =
            events === 2 && Result.isSuccess(second)
              ? { ...change.success, events: [...change.success.events, ...second.success.events] }
              : change.success
          yield* orders.save(both)
        })
      )
      return { _tag: "Done" }
    })
  )

/** An operator's decision about a rejected event, whatever its state is by then. */
export const operate = (what: "redrive" | "discard", event: { readonly name: string; readonly id: string }): Request =>
  make(
    `${what} ${event.name}`,
    -1,
    false,
    Effect.gen(function* () {
      const deadLetters = yield* OutboxDeadLetters
      const operator = { actor: "operator", reason: "as the case says" }
      yield* Effect.result(
        what === "redrive" ? deadLetters.retry(event.id, operator) : deadLetters.discard(event.id, operator)
      )
      return { _tag: "Done" }
    })
  )
