/** Compares the books once everything is at rest: orders, payments, the gateway's ledger, the events and the revenue. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** What has still to happen once all faults have stopped; empty at rest. */
export const unrest = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly what: string; readonly count: number }>`
        SELECT what, count FROM (
          SELECT 'payments under way' AS what, count(*)::int4 AS count FROM payments WHERE status IN ('charging', 'refunding')
          UNION ALL SELECT 'recoveries that wait or run', count(*)::int4 FROM outbox_tasks
            WHERE task_type = 'payment.recover' AND state IN ('pending', 'processing', 'failed')
          UNION ALL SELECT 'events in the queue', count(*)::int4 FROM outbox_events
          UNION ALL SELECT 'events not applied by analytics', count(*)::int4 FROM event_log AS e
            WHERE NOT EXISTS (SELECT FROM processed_events AS p WHERE p.consumer_name = 'analytics' AND p.event_id = e.event_id)
        ) AS u WHERE count > 0`
)

/** Every difference between orders, payments, the gateway and the revenue, as a sentence. */
export const differences = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly sentence: string }>`
    WITH moved AS (
      SELECT c.idempotency_key, c.currency, p.order_id, c.amount_minor,
             (SELECT coalesce(sum(r.amount_minor), 0) FROM sandbox_gateway.refunds AS r WHERE r.charge_id = c.id) AS back
      FROM sandbox_gateway.charges AS c LEFT JOIN payments AS p ON p.id::text = c.idempotency_key
      WHERE c.status = 'captured'),
    kept AS (SELECT currency, sum(amount_minor - back) AS sum FROM moved GROUP BY currency),
    paid AS (SELECT currency, sum(total_amount_minor) AS sum FROM orders WHERE status = 'paid' GROUP BY currency),
    revenue AS (SELECT currency, sum(amount_minor) AS sum FROM revenue_daily GROUP BY currency)
    SELECT 'order ' || order_id || ' was captured ' || count(*) || ' times' AS sentence FROM moved GROUP BY order_id HAVING count(*) > 1
    UNION ALL SELECT 'the gateway captured ' || idempotency_key || ', and no payment knows of it' FROM moved WHERE order_id IS NULL
    UNION ALL SELECT 'in ' || currency || ' the gateway kept ' || coalesce(kept.sum, 0) || ', and orders for ' || coalesce(paid.sum, 0) || ' are paid'
      FROM kept FULL JOIN paid USING (currency) WHERE coalesce(kept.sum, 0) <> coalesce(paid.sum, 0)
    UNION ALL SELECT 'in ' || currency || ' revenue is ' || coalesce(revenue.sum, 0) || ', and orders for ' || coalesce(paid.sum, 0) || ' are paid'
      FROM revenue FULL JOIN paid USING (currency) WHERE coalesce(revenue.sum, 0) <> coalesce(paid.sum, 0)
    UNION ALL SELECT 'payment ' || p.id || ' of the ' || o.status || ' order ' || o.id || ' is ' || p.status
      FROM payments AS p JOIN orders AS o ON o.id = p.order_id
      WHERE p.status NOT IN ('declined', CASE o.status WHEN 'paid' THEN 'captured' ELSE 'refunded' END)
    UNION ALL SELECT 'payment ' || p.id || ' is ' || p.status || ', and the gateway captured ' || coalesce(m.amount_minor, 0) || ' and gave back ' || coalesce(m.back, 0)
      FROM payments AS p LEFT JOIN moved AS m ON m.idempotency_key = p.id::text
      WHERE (p.captured_minor, p.refunded_minor) <> (coalesce(m.amount_minor, 0), coalesce(m.back, 0))
    UNION ALL SELECT 'the ' || o.status || ' order ' || o.id || ' has the events ' || e.types
      FROM orders AS o
      JOIN (SELECT aggregate_id, string_agg(event_type, ' ' ORDER BY aggregate_version) AS types FROM event_log
            WHERE event_type <> 'PaymentDeclined' GROUP BY aggregate_id) AS e ON e.aggregate_id = o.id::text
      WHERE e.types <> 'OrderPlaced' || CASE o.status WHEN 'paid' THEN ' OrderPaid' WHEN 'refunded' THEN ' OrderPaid OrderRefunded'
                                        WHEN 'cancelled' THEN ' OrderCancelled' ELSE '' END
    UNION ALL SELECT 'task ' || task_id || ' is dead: ' || coalesce(last_error, '') FROM outbox_tasks
      WHERE task_type = 'payment.recover' AND state = 'dead'`
  return rows.map(({ sentence }) => sentence)
})
