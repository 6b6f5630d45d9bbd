/** What clients ask of the service: place an order, pay it, and decline it (a short transaction of a third kind). */
import type { PgClient } from "@effect/sql-pg"
import { Data, Effect, Exit, Result } from "effect"
import { type IdempotencyKey, Idempotency, IdempotencyKey as Key } from "../../src/application/Idempotency.ts"
import { Orders } from "../../src/application/Orders.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import { Currency } from "../../src/domain/Money.ts"
import { CustomerId, declinePayment, OrderId, Sku } from "../../src/domain/Order.ts"
import { PaymentId, PaymentMethod } from "../../src/domain/Payment.ts"
import { Transaction } from "../../src/platform/database/Transaction.ts"

/** The orders of a case. Their amounts differ, and so do their sums: a wrong total tells which one is missing. */
export const orderLetters = ["A", "B", "C"] as const
const amounts = [100, 230, 710] as const

export const methods = ["pm_ok", "pm_declined", "pm_timeout_then_captured"] as const

/** A request as its sender sees it: sent again with the same key until its answer is final. */
export interface Request {
  readonly title: string
  readonly order: number
  readonly isPlace: boolean
  /** The answer is final where this succeeds with true. */
  readonly send: Effect.Effect<boolean, unknown, PlaceOrder | PayOrder | Orders | Idempotency | PgClient.PgClient>
  answered: boolean
}

const keyOf = (number: number): IdempotencyKey => Key.make(`request-${number}`)

/** Orders that clients know the id of: those whose placing was answered. */
export type KnownOrders = Map<number, OrderId>

export const place = (number: number, order: number, known: KnownOrders): Request => ({
  title: `place order ${orderLetters[order]}`,
  order,
  isPlace: true,
  answered: false,
  send: Effect.gen(function* () {
    const body = {
      customerId: CustomerId.make(orderLetters[order]!),
      currency: Currency.make("EUR"),
      lines: [{ sku: Sku.make("thing"), quantity: 1, unitAmountMinor: amounts[order]! }]
    }
    const { orderId } = yield* (yield* PlaceOrder).place(body, {
      method: "POST",
      path: "/orders",
      key: keyOf(number),
      body
    })
    known.set(order, orderId)
    return true
  })
})

/** Nobody can pay an order whose id he does not know: such a request is not sent. */
class UnknownOrder extends Data.TaggedError("UnknownOrder") {
  override readonly message = "nobody knows its id yet"
}

const idOf = (order: number, known: KnownOrders) =>
  Effect.suspend(() => {
    const id = known.get(order)
    return id === undefined ? Effect.fail(new UnknownOrder()) : Effect.succeed(id)
  })

export const pay = (number: number, order: number, method: (typeof methods)[number], known: KnownOrders): Request => ({
  title: `pay order ${orderLetters[order]}${method === "pm_ok" ? "" : method === "pm_declined" ? " (will be declined)" : " (the gateway's first answer gets lost)"}`,
  order,
  isPlace: false,
  answered: false,
  send: Effect.gen(function* () {
    const id = yield* idOf(order, known)
    const request = { method: "POST", path: `/orders/${id}/pay`, key: keyOf(number), body: { paymentMethod: method } }
    const result = yield* Effect.result((yield* PayOrder).pay(id, PaymentMethod.make(method), request))
    // "In progress" is no answer, and an unknown outcome is asked for again. All others stand.
    return Result.isSuccess(result) ? result.success._tag === "Final" : result.failure._tag !== "PaymentInProgress"
  })
})

/**
 * A use case in a few lines, as cancelling or refunding is: claim the key, lock the order, save it with an event. Two of them on
 * one order are what makes writers of one aggregate wait for each other.
 */
export const decline = (number: number, order: number, known: KnownOrders): Request => ({
  title: `note a decline on order ${orderLetters[order]}`,
  order,
  isPlace: false,
  answered: false,
  send: Effect.gen(function* () {
    const id = yield* idOf(order, known)
    const [orders, idempotency] = [yield* Orders, yield* Idempotency]
    const subject = `00000000-0000-7000-8000-${String(number).padStart(12, "0")}`
    yield* Transaction.run(
      Effect.gen(function* () {
        const claim = yield* idempotency.claim(
          { method: "POST", path: `/orders/${id}/decline`, key: keyOf(number), body: {} },
          subject
        )
        if (claim._tag !== "First") return
        const change = declinePayment(yield* orders.lock(OrderId.make(id)), PaymentId.make(subject), "noted")
        // A paid order is not declined any more: the key is used up all the same.
        if (Result.isSuccess(change)) yield* orders.save(change.success)
      })
    )
    return true
  })
})

/** Whether the request is done with. */
export const isFinal = (exit: Exit.Exit<unknown, unknown>): boolean => Exit.isSuccess(exit) && exit.value === true
