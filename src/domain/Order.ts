/**
 * The order: its states, and the events that announce them.
 *
 * pending → paid → refunded, or pending → cancelled ({@link orderTransitions}). A paid order can only be refunded. Each change of state is
 * announced by an event. `version` counts the events: each event increases it by one.
 */
import { Result, Schema } from "effect"
import type { OrderEvent } from "./Events.ts"
import { type CustomerId, OrderId, type PaymentId } from "./Ids.ts"
import { type AmountMinor, type Currency, totalOf } from "./Money.ts"
import type { OrderLine } from "./OrderLines.ts"

/** The statuses that readers see: the stored ones, and `paying` or `refunding` while a payment of the order is under way. */
export const OrderStatus = Schema.Literals(["pending", "paying", "paid", "cancelled", "refunding", "refunded"])
export type OrderStatus = typeof OrderStatus.Type

/** The statuses that are stored: those that an event announced. */
export const StoredStatus = Schema.Literals(["pending", "paid", "cancelled", "refunded"])
export type StoredStatus = typeof StoredStatus.Type

/** The allowed transitions, drawn in docs/payments.md. */
export const orderTransitions: Readonly<Record<StoredStatus, ReadonlyArray<StoredStatus>>> = {
  pending: ["paid", "cancelled"],
  paid: ["refunded"],
  cancelled: [],
  refunded: []
}

/** An order, read under its row lock to be changed. Its lines never change, and are not part of it. */
export interface Order {
  readonly id: OrderId
  readonly customerId: CustomerId
  readonly currency: Currency
  readonly status: StoredStatus
  /** How many events the order has had. */
  readonly version: number
  readonly totalAmountMinor: AmountMinor
}

/** A change: the order as it will be stored, and the events that announce the change. */
export interface Change {
  readonly order: Order
  readonly events: readonly [OrderEvent, ...ReadonlyArray<OrderEvent>]
}

/** The order's state does not allow the request. */
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

/** The order in its next state, with the event that announces it. A conflict where {@link orderTransitions} has no such transition. */
const move = (order: Order, to: StoredStatus, event: OrderEvent): Result.Result<Change, OrderStateConflict> =>
  orderTransitions[order.status].includes(to)
    ? Result.succeed({ order: { ...order, status: to }, events: [event] })
    : conflict(order, to)

const amountOf = (order: Order) => ({ amountMinor: order.totalAmountMinor, currency: order.currency })

/** A new order with OrderPlaced. Its version is 0, which precedes the first event. */
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

/** The payment of a paid order was refunded. */
export const markRefunded = (order: Order, paymentId: PaymentId): Result.Result<Change, OrderStateConflict> =>
  move(order, "refunded", {
    _tag: "OrderRefunded",
    data: { customerId: order.customerId, paymentId, amount: amountOf(order) }
  })

/** The order is cancelled. `lines` are the order's: its reservations are released by them. */
export const cancel = (order: Order, lines: ReadonlyArray<OrderLine>): Result.Result<Change, OrderStateConflict> =>
  move(order, "cancelled", { _tag: "OrderCancelled", data: { lines } })

/** The payment was declined: the order stays pending, and an event gives the reason. */
export const declinePayment = (
  order: Order,
  paymentId: PaymentId,
  reason: string
): Result.Result<Change, OrderStateConflict> =>
  order.status !== "pending"
    ? conflict(order, "declined")
    : Result.succeed({ order, events: [{ _tag: "PaymentDeclined", data: { paymentId, reason } }] })
