/**
 * Events ↔ revenue: each day's revenue is the sum of the events that analytics has applied. The events are those of the archive and the queue; of
 * older ones the billing ledger keeps amount and time.
 *
 * A day is read in parts, in one snapshot: the events of a day can be a million. Which events analytics has applied, its marks tell, and its
 * cursors: a mark may be forgotten, or deleted.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { skewInterval } from "../../platform/Ids.ts"
import { countOf } from "../../platform/Plural.ts"
import { keptSince } from "../../platform/Retention.ts"
import { format } from "../../domain/Money.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { CantMend, type Found, type RuleText, type Walk } from "./Difference.ts"
import { inOneTransaction } from "./Repair.ts"
import { inSnapshot, isPassed, type Kept } from "./SqlRule.ts"

const rule: RuleText = {
  name: "revenue-differs",
  books: "events ↔ revenue",
  means: "a day's revenue is told wrong",
  repair: "the day is computed anew from its events"
}

/** The books that a day is computed from. An event that is lost, or tells a wrong day, does not show which day it is missing from. */
const sources = [
  "captured-order-pending",
  "captured-order-cancelled",
  "refunded-order-paid",
  "event-differs",
  "event-without-change",
  "billing-entry-missing",
  "billing-entry-differs",
  "billing-entry-twice",
  "billing-entry-unfounded"
]

/** A day has 24 hours, and an event's id can be an hour before or after its time: ids of 26 hours. */
const hours = Array.from({ length: 26 }, (_, hour) => hour)

const days = Rows.all(Schema.Struct({ day: Schema.String }))
const Part = Schema.Struct({ currency: Schema.String, amount: Schema.BigIntFromString })
const parts = Rows.all(Part)
const readParts = Rows.all(Schema.Struct({ ...Part.fields, unread: Schema.Int }))

/**
 * The sums of a day by currency, as its events tell, and how many events analytics has neither applied nor refused. Not among these are the events of
 * the last moment: they are on their way, and analytics adds them itself.
 */
const computed = Effect.fnUntraced(function* (day: string, graceMillis: number) {
  const { sql } = yield* Transaction
  const sums = new Map<string, { readonly amount: bigint; readonly unread: number }>()
  const ofEvent = (data: string) =>
    sql.literal(`
    ${data} -> 'amount' ->> 'currency' AS currency,
    CASE event_type WHEN 'OrderPaid' THEN 1 ELSE -1 END * (${data} -> 'amount' ->> 'amountMinor')::numeric AS amount`)
  for (const hour of hours) {
    const inPart = (table: string) => sql`
      ${sql.literal(table)}.event_id >= uuid_v7_floor_at(${day}::timestamp AT TIME ZONE 'UTC' - ${skewInterval}::interval + ${hour}::int4 * interval '1 hour')
      AND ${sql.literal(table)}.event_id < uuid_v7_floor_at(${day}::timestamp AT TIME ZONE 'UTC' - ${skewInterval}::interval + ${hour + 1}::int4 * interval '1 hour')
      AND ${sql.literal(table)}.occurred_at >= ${day}::timestamp AT TIME ZONE 'UTC'
      AND ${sql.literal(table)}.occurred_at < (${day}::timestamp + interval '1 day') AT TIME ZONE 'UTC'`
    const rows = yield* readParts(sql`
      WITH events AS (
        SELECT event_id, aggregate_id, aggregate_version AS version, ${ofEvent("data")} FROM event_log
        WHERE ${inPart("event_log")} AND aggregate_type = 'Order' AND event_type IN ('OrderPaid', 'OrderRefunded')
        UNION ALL
        -- A consumer may have applied an event before its mark has taken it out of the queue.
        SELECT event_id, aggregate_id, aggregate_version, ${ofEvent("data")} FROM outbox_events
        WHERE ${inPart("outbox_events")} AND aggregate_type = 'Order' AND event_type IN ('OrderPaid', 'OrderRefunded')
          AND EXISTS (SELECT FROM processed_events AS mark WHERE mark.consumer_name = 'analytics' AND mark.event_id = outbox_events.event_id)),
      known AS (
        SELECT *, true AS is_certain FROM events
        UNION ALL
        -- The ledger does not know the version. Before OrderPaid comes OrderPlaced, and before OrderRefunded both.
        SELECT event_id, order_id::text, CASE debit_account WHEN 'gateway' THEN 2 ELSE 3 END, currency,
               CASE debit_account WHEN 'gateway' THEN 1 ELSE -1 END * amount_minor::numeric,
               -- A young entry without an event may be a wrong one.
               uuid_v7_time(event_id) < greatest(${sql.literal(keptSince("event_log"))}, ${sql.literal(keptSince("processed_events"))})
        FROM billing_ledger
        WHERE ${inPart("billing_ledger")} AND NOT EXISTS (SELECT FROM events WHERE events.event_id = billing_ledger.event_id))
      SELECT currency, coalesce(sum(amount) FILTER (WHERE applied), 0)::text AS amount, count(*) FILTER (WHERE NOT applied AND unread)::int4 AS unread
      FROM known
      CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM processed_events AS mark WHERE mark.consumer_name = 'analytics' AND mark.event_id = known.event_id)
               OR (known.is_certain AND ${sql.literal(isPassed("'analytics'", "known"))}) AS applied) AS marked
      CROSS JOIN LATERAL (
        SELECT uuid_v7_time(known.event_id) < clock_now() - ${graceMillis}::int4 * interval '1 millisecond'
               AND NOT EXISTS (SELECT FROM consumer_cursors AS c
                               WHERE c.consumer_name = 'analytics' AND c.aggregate_id = known.aggregate_id AND c.aggregate_type = 'Order'
                                 AND c.version >= known.version)
               AND NOT EXISTS (SELECT FROM inbox_parked AS p WHERE p.consumer_name = 'analytics' AND p.event_id = known.event_id::text)
               AND NOT EXISTS (SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = 'analytics' AND d.event_id = known.event_id::text)
                 AS unread) AS passed
      GROUP BY currency`)
    for (const { amount, currency, unread } of rows) {
      const before = sums.get(currency) ?? { amount: 0n, unread: 0 }
      sums.set(currency, { amount: before.amount + amount, unread: before.unread + unread })
    }
  }
  return sums
})

const stored = (day: string) =>
  Effect.flatMap(Transaction, ({ sql }) =>
    parts(sql`SELECT currency, amount_minor::text AS amount FROM revenue_daily WHERE day = ${day}::date`)
  )

/** The differences of a day, one for each currency. */
const differencesOf = Effect.fnUntraced(function* (day: string, graceMillis: number) {
  const expected = yield* computed(day, graceMillis)
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
      SELECT revenue_daily.day::text FROM revenue_daily, last WHERE revenue_daily.day <= last.day
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
        const { amount, unread } = (yield* computed(day, graceMillis)).get(currency) ?? { amount: 0n, unread: 0 }
        // Cursor and mark may both be lost, and then nothing else tells an event that was applied from one that is on its way.
        if (unread > 0) return yield* new CantMend({ reason: unreadText(unread) })
        yield* sql`
          UPDATE revenue_daily SET amount_minor = ${String(amount)}::text::numeric WHERE day = ${day}::date AND currency = ${currency}`
      })
    })
  }
})
