/**
 * Whether all books agree about the orders of a drill: money, events, the topic, and what the consumers have made of it. Each figure is read where it
 * is kept, in one statement: none is derived from another one.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { ordersTopic } from "../../domain/Events.ts"
import * as Rows from "../../platform/Rows.ts"

/** A sentence, and whether it is true. */
export type Check = readonly [what: string, holds: boolean]

const figures = Rows.one(
  Schema.Struct({
    /** Amounts in minor units, of paid orders; of payments and of the gateway less what was given back; of the ledger. */
    paid: Schema.Number,
    captured: Schema.Number,
    charged: Schema.Number,
    booked: Schema.Number,
    /** Changes of the orders: each has one event. */
    changes: Schema.Int,
    /** Events that wait, or have failed. */
    waiting: Schema.Int,
    /** Events in the topic, and their records: one more for each copy. */
    inTopic: Schema.Int,
    records: Schema.Int,
    /** Events whose first record does not follow that of the version before. */
    outOfOrder: Schema.Int,
    /** Marks of consumers, and the sum of the versions that their cursors have come to. */
    marks: Schema.Int,
    applied: Schema.Int,
    /** Payments without an outcome. */
    open: Schema.Int
  })
)

const money = (minor: number) => `${(minor / 100).toFixed(2)} EUR`

/** The checks over these orders, once nothing is on its way any more. */
export const of = Effect.fnUntraced(function* (orders: ReadonlyArray<string>, consumers: ReadonlyArray<string>) {
  const sql = yield* SqlClient.SqlClient
  const sums = yield* figures(sql`
    WITH looked AS (SELECT id, id::text AS key, status, version, total_amount_minor AS total FROM orders
                    WHERE id = ANY(${[...orders]}::uuid[])),
    paying AS (SELECT p.id, p.id::text AS key, p.status, p.captured_minor - p.refunded_minor AS captured
               FROM payments AS p JOIN looked ON looked.id = p.order_id),
    topic AS (SELECT record_key AS key, value ->> 'eventId' AS event_id, (value ->> 'aggregateVersion')::int4 AS version,
                     min(record_offset) AS first, count(*) AS records
              FROM (SELECT record_key, record_offset, convert_from(record_value, 'UTF8')::json AS value FROM broker_log
                    WHERE topic = ${ordersTopic} AND record_key IN (SELECT key FROM looked)) AS read
              GROUP BY 1, 2, 3),
    steps AS (SELECT version - lag(version, 1, 0) OVER (PARTITION BY key ORDER BY first) AS step FROM topic)
    SELECT (SELECT coalesce(sum(total), 0) FROM looked WHERE status = 'paid')::float8 AS paid,
           (SELECT coalesce(sum(captured), 0) FROM paying)::float8 AS captured,
           ((SELECT coalesce(sum(amount_minor), 0) FROM sandbox_gateway.charges
             WHERE status = 'captured' AND idempotency_key IN (SELECT key FROM paying))
            - (SELECT coalesce(sum(amount_minor), 0) FROM sandbox_gateway.refunds
               WHERE charge_key IN (SELECT key FROM paying)))::float8 AS charged,
           (SELECT coalesce(sum(CASE 'gateway' WHEN debit_account THEN amount_minor WHEN credit_account THEN -amount_minor ELSE 0 END), 0)
            FROM billing_ledger WHERE order_id IN (SELECT id FROM looked))::float8 AS booked,
           (SELECT coalesce(sum(version), 0) FROM looked)::int4 AS changes,
           (SELECT count(*) FROM looked JOIN outbox_status AS s ON s.aggregate_id = looked.key AND s.aggregate_type = 'Order'
            WHERE s.status <> 'published')::int4 AS waiting,
           (SELECT count(*) FROM topic)::int4 AS "inTopic",
           (SELECT coalesce(sum(records), 0) FROM topic)::int4 AS records,
           (SELECT count(*) FROM steps WHERE step <> 1)::int4 AS "outOfOrder",
           (SELECT count(*) FROM processed_events WHERE event_id IN (SELECT event_id::uuid FROM topic))::int4 AS marks,
           (SELECT coalesce(sum(c.version), 0) FROM looked JOIN consumer_cursors AS c
              ON c.aggregate_id = looked.key AND c.aggregate_type = 'Order')::int4 AS applied,
           (SELECT count(*) FROM paying WHERE status IN ('charging', 'refunding', 'manual'))::int4 AS open`)
  const { applied, booked, captured, changes, charged, inTopic, marks, open, outOfOrder, paid, records, waiting } = sums
  const all = changes * consumers.length
  const checks: ReadonlyArray<Check> = [
    [`${money(paid)} is the total of paid orders, of ${orders.length}`, paid > 0],
    [
      `${money(captured)} is captured less what was given back, and no payment is open`,
      captured === paid && open === 0
    ],
    [`${money(charged)} is charged at the gateway less what was given back`, charged === paid],
    [`${money(booked)} is in billing's ledger`, booked === paid],
    [
      `${changes} changes, ${inTopic} events in the topic (${records} records), ${waiting} waiting`,
      inTopic === changes && waiting === 0
    ],
    ["each order's events came in version order, without a gap", outOfOrder === 0],
    [
      `${applied} of ${all} effects at ${consumers.length} consumers, ${marks} marks: each event is applied once`,
      applied === all && marks === all
    ]
  ]
  return checks
})
