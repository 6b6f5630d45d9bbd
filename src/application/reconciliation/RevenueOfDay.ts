/**
 * The revenue of a day: the sum of the events that analytics has applied. The events are those of the archive and the queue; of older ones the billing
 * ledger keeps amount and time. Which ones analytics has applied, its marks tell, and its cursors: a mark may be forgotten, or deleted.
 */
import { Effect, Schema } from "effect"
import { skewInterval } from "../../platform/Ids.ts"
import { keptSince } from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { isPassed, type Sql } from "./SqlRule.ts"

/** The revenue of a day in a currency. */
export interface Revenue {
  /** In minor units, of the events that analytics has applied. */
  readonly amount: bigint
  /** How many events analytics has neither applied nor refused, those that are on their way left out. */
  readonly unread: number
}

const parts = Rows.all(Schema.Struct({ currency: Schema.String, amount: Schema.BigIntFromString, unread: Schema.Int }))

/** A day has 24 hours, and an event's id can be an hour before or after its time: ids of 26 hours. */
const hours = Array.from({ length: 26 }, (_, hour) => hour)

/** The rows of a table that are of the day, and whose ids are of its `hour`. */
const inHour = (sql: Sql, day: string, hour: number, table: string) => sql`
  ${sql.literal(table)}.event_id >= uuid_v7_floor_at(${day}::timestamp AT TIME ZONE 'UTC' - ${skewInterval}::interval + ${hour}::int4 * interval '1 hour')
  AND ${sql.literal(table)}.event_id < uuid_v7_floor_at(${day}::timestamp AT TIME ZONE 'UTC' - ${skewInterval}::interval + ${hour + 1}::int4 * interval '1 hour')
  AND ${sql.literal(table)}.occurred_at >= ${day}::timestamp AT TIME ZONE 'UTC'
  AND ${sql.literal(table)}.occurred_at < (${day}::timestamp + interval '1 day') AT TIME ZONE 'UTC'`

/** Whether the event tells an amount. One that was changed by hand may not: `event-differs` names it, and its day waits for that. */
const tellsAmount = `
  (data -> 'amount' ->> 'currency' ~ '^[A-Z]{3}$' AND data -> 'amount' ->> 'amountMinor' ~ '^[0-9]{1,18}$')`

/** The amount that an event of archive or queue adds. Its own CASE: Postgres may cast a row before it has left it out. */
const movement = `
  data -> 'amount' ->> 'currency' AS currency,
  CASE WHEN ${tellsAmount} THEN CASE event_type WHEN 'OrderPaid' THEN 1 ELSE -1 END * (data -> 'amount' ->> 'amountMinor')::numeric END AS amount`

/** The amount that an entry of the ledger adds. It does not know the version: before OrderPaid comes OrderPlaced, and before OrderRefunded both. */
const entry = `
  event_id, order_id::text AS aggregate_id, CASE debit_account WHEN 'gateway' THEN 2 ELSE 3 END AS version, currency,
  CASE debit_account WHEN 'gateway' THEN 1 ELSE -1 END * amount_minor::numeric AS amount`

const isMarked = (event: string) =>
  `EXISTS (SELECT FROM processed_events AS mark WHERE mark.consumer_name = 'analytics' AND mark.event_id = ${event}.event_id)`

/** Whether analytics has applied the event with the alias `known`. Of one that is not certain the mark alone tells. */
const isApplied = `(${isMarked("known")} OR (known.is_certain AND ${isPassed("'analytics'", "known")}))`

/** Whether analytics has neither read nor refused it, and it is no more on its way. */
const isUnread = (sql: Sql, graceMillis: number) => sql`
  (uuid_v7_time(known.event_id) < clock_now() - ${graceMillis}::int4 * interval '1 millisecond'
   AND NOT EXISTS (SELECT FROM consumer_cursors AS c
                   WHERE c.consumer_name = 'analytics' AND c.aggregate_id = known.aggregate_id AND c.aggregate_type = 'Order'
                     AND c.version >= known.version)
   AND NOT EXISTS (SELECT FROM inbox_parked AS p WHERE p.consumer_name = 'analytics' AND p.event_id = known.event_id::text)
   AND NOT EXISTS (SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = 'analytics' AND d.event_id = known.event_id::text))`

/** The parts of the day's revenue in an hour of ids, by currency. */
const ofHour = Effect.fnUntraced(function* (day: string, hour: number, graceMillis: number) {
  const { sql } = yield* Transaction
  const inPart = (table: string) => inHour(sql, day, hour, table)
  return yield* parts(sql`
    WITH events AS (
      SELECT event_id, aggregate_id, aggregate_version AS version, ${sql.literal(movement)} FROM event_log
      WHERE ${inPart("event_log")} AND aggregate_type = 'Order' AND event_type IN ('OrderPaid', 'OrderRefunded')
        AND ${sql.literal(tellsAmount)}
      UNION ALL
      -- A consumer may have applied an event before its mark has taken it out of the queue.
      SELECT event_id, aggregate_id, aggregate_version, ${sql.literal(movement)} FROM outbox_events
      WHERE ${inPart("outbox_events")} AND aggregate_type = 'Order' AND event_type IN ('OrderPaid', 'OrderRefunded')
        AND ${sql.literal(tellsAmount)} AND ${sql.literal(isMarked("outbox_events"))}),
    known AS (
      SELECT *, true AS is_certain FROM events
      UNION ALL
      SELECT ${sql.literal(entry)},
             -- A young entry without an event may be a wrong one.
             uuid_v7_time(event_id) < greatest(${sql.literal(keptSince("event_log"))}, ${sql.literal(keptSince("processed_events"))})
      FROM billing_ledger
      WHERE ${inPart("billing_ledger")} AND NOT EXISTS (SELECT FROM events WHERE events.event_id = billing_ledger.event_id)),
    -- Asked once for each event: both sums need it.
    told AS MATERIALIZED (
      SELECT *, ${sql.literal(isApplied)} AS applied FROM known)
    SELECT currency, coalesce(sum(amount) FILTER (WHERE applied), 0)::text AS amount,
           count(*) FILTER (WHERE NOT applied AND ${isUnread(sql, graceMillis)})::int4 AS unread
    FROM told AS known GROUP BY currency`)
})

/**
 * The revenue of the day (UTC, `YYYY-MM-DD`) by currency. An event counts as on its way for `graceMillis` after its id's time: analytics adds it itself.
 * A day's events can be a million, so an hour's are read at a time. All of it is in the transaction's snapshot.
 */
export const compute = Effect.fnUntraced(function* (day: string, graceMillis: number) {
  const sums = new Map<string, Revenue>()
  for (const hour of hours) {
    for (const { amount, currency, unread } of yield* ofHour(day, hour, graceMillis)) {
      const before = sums.get(currency) ?? { amount: 0n, unread: 0 }
      sums.set(currency, { amount: before.amount + amount, unread: before.unread + unread })
    }
  }
  return sums
})
