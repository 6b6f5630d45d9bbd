/**
 * Billing: the ledger, double-entry. A movement is one row that names the account debited and the account credited, so the books
 * balance by their shape; it carries its event's id, so no event is booked twice.
 */
import { Effect } from "effect"
import { type OrderPaid, type OrderRefunded, ordersTopic } from "../../domain/Events.ts"
import type { Subscriber } from "../../messaging/inbox/ApplySlice.ts"
import type { Envelope } from "../../messaging/Envelope.ts"
import { Transaction } from "../../platform/database/Transaction.ts"
import { decodeOrderEvent } from "../OrderEvents.ts"

/** What the gateway owes us grows with a sale; a refund is paid out of it, and stands beside the sales, not in place of one. */
const accountsOf = {
  OrderPaid: { debit: "gateway", credit: "sales" },
  OrderRefunded: { debit: "refunds", credit: "gateway" }
} as const

const book = Effect.fnUntraced(function* (
  envelope: Envelope,
  { _tag, data }: typeof OrderPaid.Type | typeof OrderRefunded.Type
) {
  const { sql } = yield* Transaction
  const { credit, debit } = accountsOf[_tag]
  yield* sql`
    INSERT INTO billing_ledger
      (event_id, order_id, payment_id, debit_account, credit_account, amount_minor, currency, occurred_at, recorded_at)
    VALUES (${envelope.eventId}::uuid, ${envelope.aggregateId}::uuid, ${data.paymentId}::uuid, ${debit}, ${credit},
            ${BigInt(data.amount.amountMinor)}::int8, ${data.amount.currency}, ${envelope.occurredAt}::timestamptz, clock_now())`
})

export const billing: Subscriber = {
  name: "billing",
  topic: ordersTopic,
  handle: Effect.fn("Billing.handle")(function* (envelope) {
    const event = yield* decodeOrderEvent(envelope)
    switch (event._tag) {
      case "OrderPaid":
      case "OrderRefunded":
        return yield* book(envelope, event)
      case "OrderPlaced":
      case "PaymentDeclined":
      case "OrderCancelled":
        return
    }
  })
}
