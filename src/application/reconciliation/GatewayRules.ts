/** Gateway ledger ↔ payments: what the gateway has done under a payment's key, beside what is recorded of the payment. Pure. */
import type { PaymentStatus } from "../../domain/Payment.ts"
import { format } from "../../domain/Money.ts"
import type { LedgerEntry } from "../GatewayLedger.ts"
import type { RuleText } from "./Difference.ts"

/** A payment as it is compared. */
export interface RecordedPayment {
  readonly id: string
  readonly orderId: string
  readonly status: PaymentStatus
  readonly amountMinor: number
  readonly currency: string
  readonly capturedMinor: number
  readonly refundedMinor: number
}

const books = "gateway ↔ payments"

/** The rules, by name. */
export const gatewayRules: ReadonlyArray<RuleText> = [
  {
    name: "gateway-charge-unknown",
    books,
    means: "a customer was charged for something that nobody here knows",
    repair: undefined,
    byHand:
      "if the database was restored, roll it forward first (docs/restore.md); if this names an order, another book tells of the payment, and its row is lost: take that row from a backup, and refund nothing; else find the charge by its key on the gateway's pages, and refund it there: docs/payments.md"
  },
  {
    name: "gateway-capture-unrecorded",
    books,
    means: "the customer has paid, and no book here tells",
    repair: "the gateway's outcome is recorded, as its webhook would be"
  },
  {
    name: "gateway-capture-missing",
    books,
    means: "an order counts as paid, and the gateway has no such money",
    repair: undefined,
    byHand:
      "look with paid-once payments check, and ask the gateway for the payment's id; if no money has come, ask the customer for it, for the order can't be paid here a second time, or let the accountant write it off: docs/payments.md"
  },
  {
    name: "gateway-amount-differs",
    books,
    means: "the gateway has taken another amount than the payment's",
    repair: undefined,
    byHand:
      "mend payment-amount-differs first if it is there, for then the payment's row may be what is wrong; paid-once events search --order names OrderPlaced, and paid-once events show its amount: refund on the gateway's pages only what is more than that: docs/payments.md"
  },
  {
    name: "gateway-charged-twice",
    books,
    means: "a customer was charged twice for one payment",
    repair: undefined,
    byHand:
      "refund the second charge on the gateway's pages, in two parts: both have the payment's id as their key, so one refund of the whole amount would be taken for the order's; the payment becomes manual, and paid-once payments settle --as captured ends that: docs/payments.md"
  },
  {
    name: "gateway-refund-unrecorded",
    books,
    means: "the money went back, and the payment still counts",
    repair: "the gateway's refund is recorded, as its webhook would be"
  },
  {
    name: "gateway-refund-missing",
    books,
    means: "the customer was told of a refund, and has no money back",
    repair: undefined,
    byHand:
      "refund the charge on the gateway's pages if the order was cancelled, if the payment was declined, or if paid-once events search --order tells that OrderRefunded was published; else the rows of payment and order are wrong: set them right with psql, and refund nothing: docs/payments.md"
  },
  {
    name: "gateway-refund-differs",
    books,
    means: "another amount went back than the payment's",
    repair: undefined,
    byHand:
      "refund what is missing on the gateway's pages, and then run paid-once reconcile --repair, which records the whole; leave it where only a part was meant to go back; let the gateway correct a refund in another currency, or of a charge without a capture: docs/payments.md"
  }
]

/** A broken rule, with what both books have. */
export interface Broken {
  readonly rule: string
  readonly expected: string
  readonly found: string
}

const sumOf = (amounts: ReadonlyArray<{ readonly amountMinor: number }>): bigint =>
  amounts.reduce((sum, { amountMinor }) => sum + BigInt(amountMinor), 0n)

/**
 * Compares. A payment that is charging is under way: its recovery asks the gateway itself. Of one that is refunding only the refund is. Money that the
 * gateway holds and has given back in full is settled, whoever did it.
 */
export const compare = (payment: RecordedPayment | undefined, entry: LedgerEntry | undefined): Broken | undefined => {
  const captures = entry?.charges.filter(({ status }) => status === "captured") ?? []
  const refunds = entry?.refunds ?? []
  const [captured, refunded] = [sumOf(captures), sumOf(refunds)]
  const [first] = captures
  if (payment === undefined) {
    return captured === refunded
      ? undefined
      : {
          rule: "gateway-charge-unknown",
          expected: "a payment",
          found: `${format({ amountMinor: captured - refunded, currency: first?.currency ?? "" })} captured`
        }
  }
  if (payment.status === "charging" || (payment.status === "refunding" && first !== undefined)) return undefined
  const { amountMinor, currency } = payment
  const [ours, back] = [BigInt(payment.capturedMinor), BigInt(payment.refundedMinor)]
  const ofOurs = (amountMinor: bigint) => format({ amountMinor, currency })
  const broken = (rule: string, expected: string, found: string): Broken => ({ rule, expected, found })
  const parts = refunds.map((one) => format(one)).join(" and ")
  if (first === undefined) {
    if (ours === 0n) {
      return refunded === 0n
        ? undefined
        : broken("gateway-refund-differs", "no refund: nothing was captured", `${parts} refunded at the gateway`)
    }
    return broken("gateway-capture-missing", `${ofOurs(ours)} captured at the gateway`, "no capture there")
  }
  if (captured - refunded === 0n && ours - back === 0n && (ours === 0n || captured === ours)) return undefined
  if (captures.length > 1) {
    return captured - refunded === ours - back
      ? undefined
      : broken(
          "gateway-charged-twice",
          `${ofOurs(ours - back)} at the gateway`,
          `${format({ amountMinor: captured - refunded, currency: first.currency })} in ${captures.length} captures`
        )
  }
  // The excess may have gone back.
  const isSettled =
    first.currency === currency && first.amountMinor > amountMinor && captured - refunded === ours - back
  if (isSettled) return undefined
  if (first.amountMinor !== amountMinor || first.currency !== currency) {
    return broken(
      "gateway-amount-differs",
      format({ amountMinor, currency }),
      `${format(first)} captured at the gateway`
    )
  }
  if (ours === 0n) {
    return broken("gateway-capture-unrecorded", `the payment is captured`, `the payment is ${payment.status}`)
  }
  if (refunded === back) return undefined
  if (refunded === 0n)
    return broken("gateway-refund-missing", `${ofOurs(back)} refunded at the gateway`, "no refund there")
  return refunded === ours && back === 0n && refunds.every((one) => one.currency === currency)
    ? broken("gateway-refund-unrecorded", "the payment is refunded", `the payment is ${payment.status}`)
    : broken("gateway-refund-differs", `${ofOurs(back)} refunded`, `${parts} refunded at the gateway`)
}
