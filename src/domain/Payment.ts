/**
 * A payment: one attempt to pay one order. charging → captured → refunding → refunded, or charging → declined. It is `manual` where a person has
 * to look at it ({@link paymentTransitions}, drawn in docs/payments.md).
 *
 * Its id is the gateway's idempotency key, so the gateway charges at most once for it.
 */
import { Schema } from "effect"
import { OrderId, PaymentId } from "./Ids.ts"
import { AmountMinor, Currency } from "./Money.ts"
import { shortText } from "./Text.ts"

/** A payment method, by the gateway's name for it (`pm_ok`). */
export const PaymentMethod = shortText(100).pipe(Schema.brand("PaymentMethod"))
export type PaymentMethod = typeof PaymentMethod.Type

export const PaymentStatus = Schema.Literals(["charging", "captured", "declined", "manual", "refunding", "refunded"])
export type PaymentStatus = typeof PaymentStatus.Type

/**
 * The allowed transitions. Every update of a payment's status is guarded by them.
 *
 * - A capture for an order that was cancelled meanwhile becomes `refunding` at once.
 * - A capture of a declined payment becomes `refunding`, too: the order may be paid by another one. A capture of another amount: `manual`.
 * - A captured payment becomes `refunded` where somebody refunds it at the gateway, and `manual` where the gateway reports a dispute, a part of
 *   the amount, or another amount.
 * - A later report of the gateway, about the charge or the refund, ends `manual`.
 */
export const paymentTransitions: Readonly<Record<PaymentStatus, ReadonlyArray<PaymentStatus>>> = {
  charging: ["captured", "declined", "refunding", "manual"],
  captured: ["refunding", "refunded", "manual"],
  declined: ["refunding", "manual"],
  refunding: ["refunded", "manual"],
  refunded: [],
  manual: ["captured", "declined", "refunding", "refunded"]
}

/** The states from which a payment may reach `status`. */
export const sourcesOf = (status: PaymentStatus): ReadonlyArray<PaymentStatus> =>
  PaymentStatus.literals.filter((from) => paymentTransitions[from].includes(status))

/** The gateway's idempotency key of the payment's refund. It depends on the payment alone. */
export const refundKeyOf = (id: PaymentId): string => `${id}-refund`

/** The payment that a refund's key belongs to. */
export const paymentOfRefundKey = (key: string): string | undefined => /^(.+)-refund$/.exec(key)?.[1]

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
