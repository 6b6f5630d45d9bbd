/** Events ↔ revenue, a day at a time: each day's revenue is the sum of the events that analytics has applied ({@link RevenueOfDay}). */
import { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { skewInterval } from "../../platform/Ids.ts"
import { countOf } from "../../platform/Plural.ts"
import { format } from "../../domain/Money.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { CantMend, type Found, type RuleText, type Walk } from "./Difference.ts"
import { inOneTransaction } from "./Repair.ts"
import * as RevenueOfDay from "./RevenueOfDay.ts"
import { inSnapshot, type Kept } from "./SqlRule.ts"

const rule: RuleText = {
  name: "revenue-differs",
  books: "events ↔ revenue",
  means: "a day's revenue is told wrong",
  repair: "the day is computed anew from its events"
}

/** The books that a day is computed from. An event that is lost, or tells a wrong day, does not show which day it is missing from. */
const sources = [
  "gateway-capture-unrecorded",
  "gateway-refund-unrecorded",
  "captured-order-pending",
  "captured-order-cancelled",
  "refunded-order-paid",
  "event-missing",
  "event-unarchived",
  "event-differs",
  "event-without-change",
  "billing-entry-missing",
  "billing-entry-differs",
  "billing-entry-twice",
  "billing-entry-unfounded"
]

const days = Rows.all(Schema.Struct({ day: Schema.String }))
const rows = Rows.all(Schema.Struct({ currency: Schema.String, amount: Schema.BigIntFromString }))

const stored = (day: string) =>
  Effect.flatMap(Transaction, ({ sql }) =>
    rows(sql`SELECT currency, amount_minor::text AS amount FROM revenue_daily WHERE day = ${day}::date`)
  )

/** The differences of a day, one for each currency. */
const differencesOf = Effect.fnUntraced(function* (day: string, graceMillis: number) {
  const expected = yield* RevenueOfDay.compute(day, graceMillis)
  const found = new Map((yield* stored(day)).map(({ amount, currency }) => [currency, amount]))
  return [...new Set([...expected.keys(), ...found.keys()])].toSorted().flatMap((currency): ReadonlyArray<Found> => {
    const [wanted, is] = [expected.get(currency)?.amount ?? 0n, found.get(currency) ?? 0n]
    if (wanted === is) return []
    const id = `${day} ${currency}`
    return [
      {
        rule: rule.name,
        key: id,
        id,
        orderId: null,
        paymentId: null,
        expected: `${format({ amountMinor: wanted, currency })} on ${day}`,
        found: format({ amountMinor: is, currency })
      }
    ]
  })
})

const unreadText = (unread: number) =>
  `analytics has no cursor at ${countOf(unread, "event")} of the day: look again once its lag is 0; if it stays, and analytics has read all, set the cursor of the order to the event's version with psql: docs/operations.md`

/** The days with an entry or an event. An event's time lies within an hour of its id's. */
const daysWithMoney = (isRecent: boolean) =>
  Effect.flatMap(Transaction, ({ sql }) =>
    days(sql`
      WITH last AS (SELECT (clock_now() AT TIME ZONE 'UTC')::date - CASE WHEN ${isRecent} THEN 0 ELSE 2 END AS day),
      ends AS (
        SELECT (uuid_v7_time((SELECT event_id FROM billing_ledger
                              WHERE event_id >= uuid_v7_floor_at('2020-01-01T00:00:00Z') ORDER BY event_id LIMIT 1)) AT TIME ZONE 'UTC')::date AS oldest)
      SELECT revenue_daily.day::text FROM revenue_daily, last
      WHERE revenue_daily.day <= last.day OR revenue_daily.day > (clock_now() AT TIME ZONE 'UTC')::date + 1
      UNION
      SELECT one.day::date::text FROM last, ends, generate_series((ends.oldest - 1)::timestamp, last.day::timestamp, interval '1 day') AS one(day)
      WHERE EXISTS (SELECT FROM billing_ledger WHERE event_id >= uuid_v7_floor_at(one.day AT TIME ZONE 'UTC' - ${skewInterval}::interval)
                      AND event_id < uuid_v7_floor_at(one.day AT TIME ZONE 'UTC' + interval '1 day' + ${skewInterval}::interval))
      ORDER BY 1`)
  )

/** The walk, a day at a time. Without an archive the last days are left out: an event may be applied by analytics and not yet be in the ledger. */
export const make = (database: PgClient.PgClient, kept: Kept, graceMillis: number): Walk => ({
  name: "revenue_daily",
  rules: [rule],
  waitsFor: sources,
  run: Effect.fnUntraced(function* (tell) {
    const all = yield* inSnapshot(database, daysWithMoney(kept.archive))
    for (const { day } of all) yield* tell(yield* inSnapshot(database, differencesOf(day, graceMillis)))
    return all.length
  }),
  again: (found) =>
    Effect.map(
      Effect.forEach([...new Set(found.map(({ key }) => key.split(" ")[0]!))], (day) =>
        inSnapshot(database, differencesOf(day, graceMillis))
      ),
      (all) => all.flat()
    ),
  mend: (found, operator, trust) => {
    const [day = "", currency = ""] = found.id.split(" ")
    // Analytics updates the row last, before it commits. So under its lock no event of that day and currency becomes applied.
    const lock = Effect.gen(function* () {
      const { sql } = yield* Transaction
      yield* sql`
        INSERT INTO revenue_daily (day, currency, amount_minor) VALUES (${day}::date, ${currency}, 0) ON CONFLICT DO NOTHING`
      yield* sql`SELECT FROM revenue_daily WHERE day = ${day}::date AND currency = ${currency} FOR UPDATE`
    })
    return inOneTransaction(database, found, operator, {
      lock,
      isThere: Effect.map(differencesOf(day, graceMillis), (now) => now.some(({ id }) => id === found.id)),
      trust,
      act: Effect.gen(function* () {
        const { sql } = yield* Transaction
        const { amount, unread } = (yield* RevenueOfDay.compute(day, graceMillis)).get(currency) ?? {
          amount: 0n,
          unread: 0
        }
        // Cursor and mark may both be lost, and then nothing else tells an event that was applied from one that is on its way.
        if (unread > 0) return yield* new CantMend({ reason: unreadText(unread) })
        yield* sql`
          UPDATE revenue_daily SET amount_minor = ${String(amount)}::text::numeric WHERE day = ${day}::date AND currency = ${currency}`
      })
    })
  }
})
