/** Orders ↔ their events: in the queue, parked, dead, or in the archive. */
import type { Statement } from "effect/sql"
import { eventTypes } from "../../../domain/Events.ts"
import type { Books } from "../Books.ts"
import { skewInterval } from "../../../platform/Ids.ts"
import { isoTime } from "../../../platform/IsoTime.ts"
import { keptSince } from "../../../platform/Retention.ts"
import { moneyText } from "../MoneyText.ts"
import { isPassedOver, type Scope, type Sql, type SqlRule, within } from "../SqlRule.ts"

const books = "orders ↔ events"

/** A uuid in an aggregate's id, or NULL: any text may stand there. */
export const uuidOf = (column: string) =>
  `CASE WHEN ${column} ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN ${column}::uuid END`

/**
 * Opens a statement with the versions of the orders in the scope that have no event: `without`. The archive forgets after its retention. An order
 * that has changed since then has its last event there, and one that was made since then has all of them.
 */
const withoutEvent = (sql: Sql, scope: Scope): Statement.Fragment => sql`
      WITH looked AS MATERIALIZED (
        SELECT o.id, o.id::text AS aggregate, o.version, o.created_at > horizon.at AS whole
        FROM orders AS o,
             (SELECT ${sql.literal(keptSince("event_log"))} AS at) AS horizon
        WHERE ${within(sql, "o.id", scope)} AND o.updated_at > horizon.at),
      short AS MATERIALIZED (
        SELECT looked.* FROM looked
        LEFT JOIN LATERAL (SELECT count(DISTINCT e.aggregate_version) AS events, max(e.aggregate_version) AS last FROM event_log AS e
                           WHERE e.aggregate_id = looked.aggregate AND e.aggregate_type = 'Order') AS logged ON true
        WHERE CASE WHEN whole THEN logged.events < looked.version ELSE coalesce(logged.last, 0) < looked.version END),
      known AS MATERIALIZED (
        SELECT aggregate_id AS aggregate, aggregate_version AS version FROM event_log
        WHERE aggregate_id = ANY (ARRAY(SELECT aggregate FROM short)) AND aggregate_type = 'Order'
        UNION SELECT aggregate_id, aggregate_version FROM outbox_events
        WHERE aggregate_id = ANY (ARRAY(SELECT aggregate FROM short)) AND aggregate_type = 'Order'
        UNION SELECT aggregate_id, aggregate_version FROM outbox_parked
        WHERE aggregate_id = ANY (ARRAY(SELECT aggregate FROM short)) AND aggregate_type = 'Order'
        UNION SELECT aggregate_id, aggregate_version FROM outbox_dead_letters
        WHERE aggregate_id = ANY (ARRAY(SELECT aggregate FROM short)) AND aggregate_type = 'Order'),
      without AS (
        SELECT short.id, short.aggregate AS aggregate_id, v AS version
        FROM short, generate_series(CASE WHEN whole THEN 1 ELSE short.version END, short.version) AS v
        WHERE NOT EXISTS (SELECT FROM known WHERE known.aggregate = short.aggregate AND known.version = v))`

/** The cursors of the consumers that have passed the version of a row of `without`: the alias is `p`. */
const passed = (sql: Sql, consumers: ReadonlyArray<string>): Statement.Fragment => sql`
      SELECT FROM consumer_cursors AS p
      WHERE p.consumer_name = ANY (${[...consumers]}::text[])
        AND p.aggregate_id = without.aggregate_id AND p.aggregate_type = 'Order' AND p.version >= without.version`

/** Of the orders: the alias is `o`. */
export const eventRules = ({ announce, appendLast }: Books): ReadonlyArray<SqlRule> => [
  {
    name: "lines-differ",
    books: "orders ↔ lines",
    means: "the customer pays for other goods than the order reserves",
    repair: undefined,
    byHand:
      "paid-once events search --order names OrderPlaced, and paid-once events show tells its lines; set order_lines right with psql: docs/operations.md",
    find: (sql, scope) => sql`
      SELECT o.id::text AS key, o.id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             ${sql.literal(moneyText("o.total_amount_minor", "o.currency"))} || ' as the sum of the lines' AS expected,
             ${sql.literal(moneyText("lines.total", "o.currency"))} AS found
      FROM orders AS o
      CROSS JOIN LATERAL (SELECT coalesce(sum(l.quantity::numeric * l.unit_amount_minor), 0) AS total
                          FROM order_lines AS l WHERE l.order_id = o.id) AS lines
      WHERE ${within(sql, "o.id", scope)} AND lines.total <> o.total_amount_minor`
  },
  {
    name: "event-missing",
    books,
    means: "no consumer hears of the change: no ledger entry, no revenue, no mail",
    repair: "the event is appended again with its version, where it is the order's last one",
    needsArchive: true,
    // A version that a consumer has passed was delivered, whatever the archive has.
    find: (sql, scope, { consumers }) => sql`
      ${withoutEvent(sql, scope)}
      SELECT id::text AS key, id || ' ' || version AS id, id::text AS "orderId", NULL::text AS "paymentId",
             'an event of version ' || version AS expected, 'no such event, and no consumer that has had it' AS found
      FROM without WHERE NOT EXISTS (${passed(sql, consumers)})`,
    mend: ({ id, orderId }) => appendLast(orderId!, Number(id.split(" ")[1]))
  },
  {
    name: "event-unarchived",
    books,
    means: "timelines, replays and rebuilds lack the event, and so does a repair that needs it",
    repair: undefined,
    byHand:
      "paid-once archive refill --since 3d (the days that the archive keeps) takes the event from the topic. If the refill says that the archive has it otherwise, delete that row in event_log with psql, and refill once more. If the topic has never had it, no consumer has: set the cursor that is ahead back with psql, and --repair tells it: docs/replay.md",
    isOfACopy: true,
    needsArchive: true,
    // All consumers jump over the version of a lost event, and of one that a roll-forward leaves out.
    find: (sql, scope, { consumers }) => sql`
      ${withoutEvent(sql, scope)}
      SELECT id::text AS key, id || ' ' || version AS id, id::text AS "orderId", NULL::text AS "paymentId",
             'the event of version ' || version || ' in the archive' AS expected, 'a consumer that has had it, and no such event' AS found
      FROM without
      WHERE EXISTS (${passed(sql, consumers)} AND NOT ${sql.literal(isPassedOver("p.consumer_name", "without"))})`
  },
  {
    name: "status-unannounced",
    books,
    means: "the order was changed without an event: ledger, revenue and mail tell of another status",
    repair: "the event that announces the status is appended, with a new version, where a payment bears the status out",
    needsArchive: true,
    find: (sql, scope) => sql`
      SELECT o.id::text AS key, o.id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             'an event that announces ' || o.status AS expected, e.event_type || ' as the last event' AS found
      FROM orders AS o
      JOIN event_log AS e ON e.aggregate_id = o.id::text AND e.aggregate_type = 'Order' AND e.aggregate_version = o.version
      WHERE ${within(sql, "o.id", scope)}
        AND NOT e.event_type = ANY (CASE o.status WHEN 'paid' THEN ARRAY['OrderPaid'] WHEN 'refunded' THEN ARRAY['OrderRefunded']
                                    WHEN 'cancelled' THEN ARRAY['OrderCancelled'] ELSE ARRAY['OrderPlaced', 'PaymentDeclined'] END)`,
    mend: ({ orderId }) => announce(orderId!)
  }
]

/** Of the archive's events. */
export const archiveRules: ReadonlyArray<SqlRule> = [
  {
    name: "event-differs",
    books,
    means:
      "the archive tells another amount, customer, payment, time, change or other goods than the order: what is booked from it would be wrong",
    repair: undefined,
    byHand:
      "paid-once archive refill --dry-run tells whether the topic has it otherwise. If so, or if another event has its version and the topic lacks this one, delete its row in event_log with psql, and paid-once archive refill --since 3d takes what is missing from the topic. Else set the row that was changed right with psql, or write the event's lost marks again: docs/reconciliation.md",
    needsArchive: true,
    // The amount is compared as text: whatever stands there is no error. An event of another type than it was
    // written with has not its data, or its turn. An event that every consumer has passed, and none has marked, was published under another id; or
    // it was passed when the order was rolled forward behind another history.
    find: (sql, scope, { consumers }) => sql`
      SELECT e.event_id::text AS key, e.event_id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             concat_ws(' ', ${sql.literal(moneyText("o.total_amount_minor", "o.currency"))}, 'for ' || left(lines.items::text, 300), 'of', o.customer_id, 'by a payment of the order, at the time of the event''s id, in its turn, the only one of its version, and marked by its consumers')
               AS expected,
             concat_ws(' ', nullif(${sql.literal(moneyText("told.money ->> 'amountMinor'", "told.money ->> 'currency'"))}, ''), 'for ' || left(e.data ->> 'lines', 300), 'of ' || (e.data ->> 'customerId'), 'by ' || (e.data ->> 'paymentId'), 'at',
                       ${sql.literal(isoTime("e.occurred_at"))}, 'in', e.event_type, e.event_id) AS found
      FROM event_log AS e JOIN orders AS o ON o.id = ${sql.literal(uuidOf("e.aggregate_id"))}
      CROSS JOIN LATERAL (SELECT CASE e.event_type WHEN 'OrderPlaced' THEN e.data -> 'total' ELSE e.data -> 'amount' END AS money) AS told
      CROSS JOIN LATERAL (SELECT jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity, 'unitAmountMinor', l.unit_amount_minor)
                                           ORDER BY l.position) AS items
                          FROM order_lines AS l WHERE e.event_type IN ('OrderPlaced', 'OrderCancelled') AND l.order_id = o.id) AS lines
      WHERE ${within(sql, "e.event_id", scope)} AND e.aggregate_type = 'Order' AND (
          (e.event_type IN ('OrderPlaced', 'OrderPaid', 'OrderRefunded') AND (
             told.money ->> 'amountMinor' IS DISTINCT FROM o.total_amount_minor::text
             OR told.money ->> 'currency' IS DISTINCT FROM o.currency
             OR e.data ->> 'customerId' IS DISTINCT FROM o.customer_id
             OR (e.event_type <> 'OrderPlaced'
                 AND NOT EXISTS (SELECT FROM payments AS p WHERE p.order_id = o.id AND p.id::text = e.data ->> 'paymentId'))))
          OR (e.event_type = 'PaymentDeclined'
              AND NOT EXISTS (SELECT FROM payments AS p
                              WHERE p.order_id = o.id AND p.id::text = e.data ->> 'paymentId' AND p.decline_reason = e.data ->> 'reason'))
          OR NOT e.event_type = ANY (${[...eventTypes]}::text[])
          OR NOT e.occurred_at BETWEEN uuid_v7_time(e.event_id) - ${skewInterval}::interval AND uuid_v7_time(e.event_id) + ${skewInterval}::interval
          OR (e.event_type IN ('OrderPlaced', 'OrderCancelled') AND (e.data -> 'lines')::jsonb IS DISTINCT FROM lines.items)
          OR (e.event_type = 'OrderPlaced') <> (e.aggregate_version = 1)
          OR (uuid_v7_time(e.event_id) >= ${sql.literal(keptSince("processed_events"))} AND cardinality(${[...consumers]}::text[]) > 0
              AND NOT EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name = ANY (${[...consumers]}::text[]) AND m.event_id = e.event_id)
              AND NOT EXISTS (SELECT FROM inbox_dead_letters AS d WHERE d.aggregate_id = e.aggregate_id AND d.event_id = e.event_id::text)
              AND NOT EXISTS (SELECT FROM left_out_events AS t WHERE t.order_id = o.id AND t.order_version >= e.aggregate_version)
              AND (SELECT count(*) FROM consumer_cursors AS c
                   WHERE c.consumer_name = ANY (${[...consumers]}::text[]) AND c.aggregate_id = e.aggregate_id AND c.aggregate_type = 'Order'
                     AND c.version >= e.aggregate_version) = cardinality(${[...consumers]}::text[]))
          OR EXISTS (SELECT FROM event_log AS other
                     WHERE other.aggregate_id = e.aggregate_id AND other.aggregate_type = 'Order' AND other.aggregate_version = e.aggregate_version
                       AND other.event_id <> e.event_id)
          OR EXISTS (SELECT FROM event_log AS before
                     WHERE before.aggregate_id = e.aggregate_id AND before.aggregate_type = 'Order' AND before.aggregate_version = e.aggregate_version - 1
                       AND NOT before.event_type = ANY (CASE e.event_type WHEN 'OrderRefunded' THEN ARRAY['OrderPaid']
                                                                          ELSE ARRAY['OrderPlaced', 'PaymentDeclined'] END)))`
  },
  {
    name: "event-without-change",
    books,
    means: "consumers have booked a change that the order does not have",
    repair: undefined,
    byHand:
      "paid-once archive refill --dry-run tells whether the archive's row was changed: delete it with psql then, and refill. Else take the order's row from a backup; after a restore, where the topic is in Kafka, paid-once roll-forward brings what is newer: docs/restore.md",
    needsArchive: true,
    find: (sql, scope) => sql`
      SELECT e.event_id::text AS key, e.event_id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             CASE WHEN o.id IS NULL THEN 'an order ' || e.aggregate_id ELSE 'version ' || e.aggregate_version || ' of the order' END AS expected,
             CASE WHEN o.id IS NULL THEN 'no such order, and ' || e.event_type || ' was published'
                  ELSE 'version ' || o.version || ', and ' || e.event_type || ' was published' END AS found
      FROM event_log AS e LEFT JOIN orders AS o ON o.id = ${sql.literal(uuidOf("e.aggregate_id"))}
      WHERE ${within(sql, "e.event_id", scope)} AND e.aggregate_type = 'Order' AND (o.id IS NULL OR o.version < e.aggregate_version)`
  }
]
