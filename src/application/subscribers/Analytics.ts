/** Analytics: revenue per day and currency. A day is the UTC date of what happened; a refund counts on its own day. */
import { Effect } from "effect"
import type { Envelope } from "../../brokers/Envelope.ts"
import { ordersTopic } from "../../domain/Events.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { decodeOrderEvents } from "../OrderEvents.ts"

const signs = { OrderPaid: 1n, OrderRefunded: -1n } as const

const handleMany = Effect.fn("Analytics.handleMany")(function* (envelopes: ReadonlyArray<Envelope>) {
  const { sql } = yield* Transaction
  const changes = (yield* decodeOrderEvents(envelopes)).flatMap(({ envelope: { occurredAt }, event }) =>
    event._tag === "OrderPaid" || event._tag === "OrderRefunded"
      ? [{ occurredAt, ...event.data.amount, sign: signs[event._tag] }]
      : []
  )
  if (changes.length === 0) return
  // The slices of all partitions update today's row. Each slice updates it once, right before its commit, and all slices update rows in the
  // order of day and currency. So a slice waits at most for another slice's commit, and no two deadlock.
  yield* sql`
    INSERT INTO revenue_daily (day, currency, amount_minor)
    SELECT (occurred_at AT TIME ZONE 'UTC')::date AS day, currency, sum(amount_minor)
    FROM unnest(${changes.map((change) => change.occurredAt)}::timestamptz[],
                ${changes.map((change) => change.currency)}::text[],
                ${changes.map((change) => change.sign * BigInt(change.amountMinor))}::int8[])
           AS change(occurred_at, currency, amount_minor)
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (day, currency) DO UPDATE SET amount_minor = revenue_daily.amount_minor + excluded.amount_minor`
})

export const analytics: Subscriber = {
  name: "analytics",
  topic: ordersTopic,
  firstSight: "from-version-1",
  handle: (event) => handleMany([event]),
  handleMany
}
