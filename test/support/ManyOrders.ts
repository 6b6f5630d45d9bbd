/** Orders by the ten thousand, paid, with all books that follow from them: made inside Postgres, as the use cases and consumers would have left them. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { idAt } from "./SqlIds.ts"

/** Orders of one statement: it takes seconds, and Postgres holds its rows. */
const chunk = 10_000

/** Fills the books. All orders were paid within the last day and a half. */
export const fill = Effect.fnUntraced(function* (orders: number) {
  const sql = yield* SqlClient.SqlClient
  for (let made = 0; made < orders; made += chunk) {
    yield* sql`
      WITH one AS MATERIALIZED (
        SELECT ${sql.literal(idAt("at"))} AS id, ${sql.literal(idAt("at"))} AS payment_id, ${sql.literal(idAt("at"))} AS placed_id,
               ${sql.literal(idAt("at"))} AS paid_id, at, n
        FROM generate_series(1, ${Math.min(chunk, orders - made)}::int4) AS n,
             LATERAL (SELECT clock_now() - n % 2000 * interval '1 minute' AS at) AS moment),
      o AS (
        INSERT INTO orders SELECT id, 'customer-' || n, 'EUR', 'paid', 2, 1250, at, at FROM one),
      l AS (
        INSERT INTO order_lines SELECT id, 0, 'book', 1, 1250 FROM one),
      p AS (
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
        SELECT payment_id, id, 'captured', 'pm_ok', 1250, 'EUR', 1250, at, at, at FROM one),
      e AS (
        INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
                               span_id, data, broker_partition, broker_offset, published_at)
        SELECT event.id, 'orders', event.type, 1, 'Order', one.id::text, event.version, at, repeat('0', 32), repeat('0', 16), event.data, 0, n, at
        FROM one, LATERAL (VALUES
          (placed_id, 'OrderPlaced', 1, json_build_object(
            'customerId', 'customer-' || n, 'lines', json_build_array(json_build_object('sku', 'book', 'quantity', 1, 'unitAmountMinor', 1250)),
            'total', json_build_object('amountMinor', 1250, 'currency', 'EUR'))),
          (paid_id, 'OrderPaid', 2, json_build_object('customerId', 'customer-' || n, 'paymentId', payment_id,
                                                      'amount', json_build_object('amountMinor', 1250, 'currency', 'EUR')))
        ) AS event(id, type, version, data)),
      c AS (
        INSERT INTO consumer_cursors
        SELECT consumer, id::text, 'Order', 2 FROM one, unnest(ARRAY['receipts', 'inventory', 'billing', 'analytics']) AS consumer),
      m AS (
        INSERT INTO processed_events (consumer_name, event_id, processed_at)
        SELECT consumer, event_id, at
        FROM one, unnest(ARRAY['receipts', 'inventory', 'billing', 'analytics']) AS consumer, unnest(ARRAY[placed_id, paid_id]) AS event_id),
      b AS (
        INSERT INTO billing_ledger SELECT paid_id, id, payment_id, 'gateway', 'sales', 1250, 'EUR', at, at FROM one),
      r AS (
        INSERT INTO inventory_reservations SELECT id, 'book', 1, 'reserved', false, at, at FROM one),
      t AS (
        INSERT INTO outbox_tasks (task_id, task_type, state, payload, priority, idempotency_key, enqueued_at, execute_at, attempts, token, finished_at)
        SELECT ${sql.literal(idAt("at"))}, 'email', 'completed',
               json_build_object('kind', 'receipt', 'to', 'customer-' || n || '@shop.example', 'subject', 'Receipt for order ' || id,
                                 'text', 'We have received 12.50 EUR for order ' || id),
               0, paid_id::text, at, at, 1, 1, at FROM one)
      INSERT INTO sandbox_gateway.charges (id, idempotency_key, amount_minor, currency, payment_method, status, charged_at)
      SELECT gen_random_uuid(), payment_id::text, 1250, 'EUR', 'pm_ok', 'captured', at FROM one`
  }
  yield* sql`
    INSERT INTO revenue_daily
    SELECT (occurred_at AT TIME ZONE 'UTC')::date, currency, sum(amount_minor) FROM billing_ledger GROUP BY 1, 2
    ON CONFLICT (day, currency) DO UPDATE SET amount_minor = excluded.amount_minor`
  yield* sql`ANALYZE`
})
