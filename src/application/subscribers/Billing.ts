/**
 * Billing: a double-entry ledger. Each movement is one row with a debit and a credit account, so the books always balance. The row's key is
 * the event's id, so no event is booked twice.
 */
import { Effect } from "effect"
import type { Envelope } from "../../brokers/Envelope.ts"
import { ordersTopic } from "../../domain/Events.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { decodeOrderEvents } from "../OrderEvents.ts"

/** A sale increases what the gateway owes us. A refund reduces that, and is booked as a refund: sales stay as they were. */
const accountsOf = {
  OrderPaid: { debit: "gateway", credit: "sales" },
  OrderRefunded: { debit: "refunds", credit: "gateway" }
} as const

const handleMany = Effect.fn("Billing.handleMany")(function* (envelopes: ReadonlyArray<Envelope>) {
  const { sql } = yield* Transaction
  const movements = (yield* decodeOrderEvents(envelopes)).flatMap(({ envelope, event }) =>
    event._tag === "OrderPaid" || event._tag === "OrderRefunded"
      ? [{ envelope, ...event.data, ...accountsOf[event._tag] }]
      : []
  )
  if (movements.length === 0) return
  yield* sql`
    INSERT INTO billing_ledger
      (event_id, order_id, payment_id, debit_account, credit_account, amount_minor, currency, occurred_at, recorded_at)
    SELECT movement.*, clock_now()
    FROM unnest(${movements.map(({ envelope }) => envelope.eventId)}::uuid[],
                ${movements.map(({ envelope }) => envelope.aggregateId)}::uuid[],
                ${movements.map(({ paymentId }) => paymentId)}::uuid[],
                ${movements.map(({ debit }) => debit)}::text[], ${movements.map(({ credit }) => credit)}::text[],
                ${movements.map(({ amount }) => BigInt(amount.amountMinor))}::int8[],
                ${movements.map(({ amount }) => amount.currency)}::text[],
                ${movements.map(({ envelope }) => envelope.occurredAt)}::timestamptz[]) AS movement`
})

export const billing: Subscriber = {
  name: "billing",
  topic: ordersTopic,
  firstSight: "from-version-1",
  // No replay: an entry that is missing is a difference, and the reconciliation books it.
  handle: (event) => handleMany([event]),
  handleMany
}
