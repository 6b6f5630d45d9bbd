/**
 * The order: what a customer wants, and how far it has come.
 *
 * pending → paid → refunded, or pending → cancelled ({@link orderTransitions}): once money has come in, it goes back by a refund. Each
 * change of state is announced by an event, and `version` counts the events: it rises by exactly one with each.
 */
import { Result, Schema } from "effect"
import type { OrderEvent } from "./Events.ts"
import { type CustomerId, OrderId, type PaymentId } from "./Ids.ts"
import { type AmountMinor, type Currency, totalOf } from "./Money.ts"
import type { OrderLine } from "./OrderLines.ts"

/** What readers see: the stored states, and `paying` or `refunding` while a payment of the order is under way. */
export const OrderStatus = Schema.Literals(["pending", "paying", "paid", "cancelled", "refunding", "refunded"])
export type OrderStatus = typeof OrderStatus.Type

/** What is stored: the states that an event announced. */
export const StoredStatus = Schema.Literals(["pending", "paid", "cancelled", "refunded"])
export type StoredStatus = typeof StoredStatus.Type

/** Where an order may go from where it is: drawn in ARCHITECTURE.md. */
export const orderTransitions: Readonly<Record<StoredStatus, ReadonlyArray<StoredStatus>>> = {
  pending: ["paid", "cancelled"],
  paid: ["refunded"],
  cancelled: [],
  refunded: []
}

/** An order as it is changed: read under its row lock. Its lines never change, so no change carries them. */
export interface Order {
  readonly id: OrderId
  readonly customerId: CustomerId
  readonly currency: Currency
  readonly status: StoredStatus
  /** How many events the order has had. */
  readonly version: number
  readonly totalAmountMinor: AmountMinor
}

/** What a change of state makes: the order as it is to be stored, and the events that announce the change. */
export interface Change {
  readonly order: Order
  readonly events: readonly [OrderEvent, ...ReadonlyArray<OrderEvent>]
}

/** The order's state does not allow what was asked. */
export class OrderStateConflict extends Schema.TaggedError<OrderStateConflict>()("OrderStateConflict", {
  orderId: OrderId,
  status: OrderStatus,
  wanted: Schema.String
}) {
  override get message() {
    return `order ${this.orderId} is ${this.status}: it can't be ${this.wanted}`
  }
}

const conflict = (order: Order, wanted: string) =>
  Result.fail(new OrderStateConflict({ orderId: order.id, status: order.status, wanted }))

/** The order in its next state, with the event that announces it; a conflict where {@link orderTransitions} has no such way. */
const move = (order: Order, to: StoredStatus, event: OrderEvent): Result.Result<Change, OrderStateConflict> =>
  orderTransitions[order.status].includes(to)
    ? Result.succeed({ order: { ...order, status: to }, events: [event] })
    : conflict(order, to)

const amountOf = (order: Order) => ({ amountMinor: order.totalAmountMinor, currency: order.currency })

/** A new order with the version 0 that comes before its first event, and OrderPlaced. */
export const place = (input: {
  readonly id: OrderId
  readonly customerId: CustomerId
  readonly currency: Currency
  readonly lines: ReadonlyArray<OrderLine>
}): Result.Result<Change, string> =>
  Result.map(totalOf(input.lines), (totalAmountMinor): Change => {
    const { currency, customerId, id, lines } = input
    return {
      order: { id, customerId, currency, status: "pending", version: 0, totalAmountMinor },
      events: [{ _tag: "OrderPlaced", data: { customerId, lines, total: { amountMinor: totalAmountMinor, currency } } }]
    }
  })

/** The payment was captured: the order is paid. */
export const markPaid = (order: Order, paymentId: PaymentId): Result.Result<Change, OrderStateConflict> =>
  move(order, "paid", {
    _tag: "OrderPaid",
    data: { customerId: order.customerId, paymentId, amount: amountOf(order) }
  })

/** The payment of a paid order was given back as a whole. */
export const markRefunded = (order: Order, paymentId: PaymentId): Result.Result<Change, OrderStateConflict> =>
  move(order, "refunded", {
    _tag: "OrderRefunded",
    data: { customerId: order.customerId, paymentId, amount: amountOf(order) }
  })

/** Nobody will pay: what the order held is free again. `lines` are the order's. */
export const cancel = (order: Order, lines: ReadonlyArray<OrderLine>): Result.Result<Change, OrderStateConflict> =>
  move(order, "cancelled", { _tag: "OrderCancelled", data: { lines } })

/** The payment was declined: the order stays as it is, and the world hears why. */
export const declinePayment = (
  order: Order,
  paymentId: PaymentId,
  reason: string
): Result.Result<Change, OrderStateConflict> =>
  order.status !== "pending"
    ? conflict(order, "declined")
    : Result.succeed({ order, events: [{ _tag: "PaymentDeclined", data: { paymentId, reason } }] })
