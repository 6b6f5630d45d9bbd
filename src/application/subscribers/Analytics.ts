/** Analytics: revenue per day and currency. A day is the UTC date of what happened; a refund counts on its own day. */
import { Effect } from "effect"
import type { Envelope } from "../../brokers/Envelope.ts"
import { ordersTopic } from "../../domain/Events.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import type { Projection } from "../../operations/rebuild/Projection.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { decodeOrderEvents } from "../OrderEvents.ts"

const signs = { OrderPaid: 1n, OrderRefunded: -1n } as const

/** Adds the events' revenue to this table. */
const addTo = Effect.fn("Analytics.handleMany")(function* (table: string, envelopes: ReadonlyArray<Envelope>) {
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
    INSERT INTO ${sql(table)} AS daily (day, currency, amount_minor)
    SELECT (occurred_at AT TIME ZONE 'UTC')::date AS day, currency, sum(amount_minor)
    FROM unnest(${changes.map((change) => change.occurredAt)}::timestamptz[],
                ${changes.map((change) => change.currency)}::text[],
                ${changes.map((change) => change.sign * BigInt(change.amountMinor))}::int8[])
           AS change(occurred_at, currency, amount_minor)
    GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (day, currency) DO UPDATE SET amount_minor = daily.amount_minor + excluded.amount_minor`
})

const handleMany = (envelopes: ReadonlyArray<Envelope>) => addTo("revenue_daily", envelopes)

export const analytics: Subscriber = {
  name: "analytics",
  topic: ordersTopic,
  firstSight: "from-version-1",
  replay: "rebuild",
  handle: (event) => handleMany([event]),
  handleMany
}

/** `paid-once rebuild analytics`: sums of what happened, so the events alone make them anew. */
export const analyticsProjection: Projection = {
  subscriber: analytics,
  tables: [{ live: "revenue_daily", rebuilt: "revenue_daily_rebuilt", key: ["day", "currency"] }],
  handleMany: (envelopes) => addTo("revenue_daily_rebuilt", envelopes)
}
