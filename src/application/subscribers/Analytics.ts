/** Analytics: revenue per day and currency. A day is the UTC date of what happened; a refund counts on its own day. */
import { Effect } from "effect"
import { ordersTopic } from "../../domain/Events.ts"
import type { Subscriber } from "../../messaging/inbox/Subscriber.ts"
import { Transaction } from "../../platform/database/Transaction.ts"
import { decodeOrderEvent } from "../OrderEvents.ts"

/** Adds to the day's revenue, which starts at nothing. */
const add = Effect.fnUntraced(function* (occurredAt: string, currency: string, amountMinor: bigint) {
  const { sql } = yield* Transaction
  // Slices of two partitions touch the same few rows, each in its own order: one after the other, or they deadlock.
  yield* sql`SELECT pg_advisory_xact_lock(hashtext('revenue_daily'))`
  yield* sql`
    INSERT INTO revenue_daily (day, currency, amount_minor)
    VALUES ((${occurredAt}::timestamptz AT TIME ZONE 'UTC')::date, ${currency}, ${amountMinor}::int8)
    ON CONFLICT (day, currency) DO UPDATE SET amount_minor = revenue_daily.amount_minor + excluded.amount_minor`
})

export const analytics: Subscriber = {
  name: "analytics",
  topic: ordersTopic,
  firstSight: "from-version-1",
  handle: Effect.fn("Analytics.handle")(function* (envelope) {
    const event = yield* decodeOrderEvent(envelope)
    switch (event._tag) {
      case "OrderPaid":
        return yield* add(envelope.occurredAt, event.data.amount.currency, BigInt(event.data.amount.amountMinor))
      case "OrderRefunded":
        return yield* add(envelope.occurredAt, event.data.amount.currency, -BigInt(event.data.amount.amountMinor))
      case "OrderPlaced":
      case "PaymentDeclined":
      case "OrderCancelled":
        return
    }
  })
}
