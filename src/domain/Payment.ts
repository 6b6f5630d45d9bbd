/**
 * A payment: one attempt to pay one order. charging → captured → refunding → refunded, or charging → declined; `manual` where the
 * gateway has not told an outcome in time ({@link paymentTransitions}, drawn in ARCHITECTURE.md).
 *
 * Its id is the idempotency key that the gateway is given, so the gateway charges for it at most once however often it is asked.
 */
import { Schema } from "effect"
import { OrderId, PaymentId } from "./Ids.ts"
import { AmountMinor, Currency } from "./Money.ts"
import { shortText } from "./Text.ts"

/** What to charge, as the gateway names it (`pm_ok`). */
export const PaymentMethod = shortText(100).pipe(Schema.brand("PaymentMethod"))
export type PaymentMethod = typeof PaymentMethod.Type

export const PaymentStatus = Schema.Literals(["charging", "captured", "declined", "manual", "refunding", "refunded"])
export type PaymentStatus = typeof PaymentStatus.Type

/**
 * Where a payment may go from where it is. Every update of a payment's status is guarded by it.
 *
 * - A capture whose order was cancelled meanwhile goes on to `refunding` at once.
 * - `manual` is left by whatever the gateway reports later: the outcome of the charge, or of the refund.
 */
export const paymentTransitions: Readonly<Record<PaymentStatus, ReadonlyArray<PaymentStatus>>> = {
  charging: ["captured", "declined", "refunding", "manual"],
  captured: ["refunding"],
  declined: [],
  refunding: ["refunded", "manual"],
  refunded: [],
  manual: ["captured", "declined", "refunding", "refunded"]
}

/** The states from which a payment may come to `status`. */
export const sourcesOf = (status: PaymentStatus): ReadonlyArray<PaymentStatus> =>
  PaymentStatus.literals.filter((from) => paymentTransitions[from].includes(status))

/** The gateway's idempotency key of the payment's refund: the same whenever and by whomever it is asked. */
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
