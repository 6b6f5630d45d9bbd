/**
 * A payment: one attempt to pay one order. charging → captured → refunding → refunded, or charging → declined.
 *
 * Its id is the idempotency key that the gateway is given, so the gateway charges for it at most once however often it is asked.
 */
import { Schema } from "effect"
import { AmountMinor, Currency } from "./Money.ts"
import { OrderId } from "./Order.ts"
import { shortText } from "./Text.ts"

/** A payment's id: a UUID version 7, and the gateway's idempotency key. */
export const PaymentId = Schema.String.check(Schema.isUUID(7)).pipe(Schema.brand("PaymentId"))
export type PaymentId = typeof PaymentId.Type

/** What to charge, as the gateway names it (`pm_ok`). */
export const PaymentMethod = shortText(100).pipe(Schema.brand("PaymentMethod"))
export type PaymentMethod = typeof PaymentMethod.Type

export const PaymentStatus = Schema.Literals(["charging", "captured", "declined", "manual", "refunding", "refunded"])
export type PaymentStatus = typeof PaymentStatus.Type

/** A payment as readers see it. Amounts in minor units. */
export const Payment = Schema.Struct({
  id: PaymentId,
  orderId: OrderId,
  status: PaymentStatus,
  amountMinor: AmountMinor,
  currency: Currency,
  capturedMinor: Schema.Int,
  refundedMinor: Schema.Int
}).annotate({ identifier: "Payment" })
export type Payment = typeof Payment.Type
