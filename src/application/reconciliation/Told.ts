/** The events that consumers had of an order. A row that was damaged, or restored by hand, may contradict them. */
import { Effect, Schema } from "effect"
import type { OrderId } from "../../domain/Ids.ts"
import { keptSince } from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"

const Told = Schema.Struct({
  /** The types that archive, queue and ledger tell. */
  types: Schema.Array(Schema.String),
  /** The last version of each type, in archive and queue. */
  versions: Schema.Record(Schema.String, Schema.Int),
  /** The types of which mails tell, one for each mail. */
  mails: Schema.Array(Schema.String),
  /** The types of which a mail or a reservation tells: these outlive an event that all other books have lost. */
  effects: Schema.Array(Schema.String),
  /** Whether a client was told that the order is paid. */
  isAnsweredPaid: Schema.Boolean,
  version: Schema.Int,
  /**
   * How many versions behind the first have a type that is known. The first is OrderPlaced. A declined payment's row tells of its event, unless the
   * order had not changed for {@link transactionSeconds} then: a decline after the cancellation has no event.
   */
  known: Schema.Int,
  /** The declines that are not among these. Only a cancelled order has any. */
  lateDeclines: Schema.Int,
  /** Whether the archive would have its last event. */
  isKept: Schema.Boolean,
  /** The version of the order's row, and its status. */
  rowVersion: Schema.Int,
  status: Schema.String
})
/** See {@link toldOf}. */
export type Told = typeof Told.Type
const toldRow = Rows.one(Told)

/**
 * The types of the order's events, and the last version, written or applied. Ledger and cursors remember events that retention has dropped.
 *
 * No index leads from an order to its mails. Their tasks are younger than the order, and the ids of both are by time.
 */
export const toldOf = Effect.fnUntraced(function* (orderId: OrderId) {
  const { sql } = yield* Transaction
  return yield* Effect.orDie(
    toldRow(sql`
      WITH written AS MATERIALIZED (
        SELECT event_type AS type, aggregate_version AS version FROM outbox_status
        WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text),
      booked AS MATERIALIZED (
        SELECT DISTINCT CASE debit_account WHEN 'gateway' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS type
        FROM billing_ledger WHERE order_id = ${orderId}::uuid),
      reserved AS MATERIALIZED (SELECT status FROM inventory_reservations WHERE order_id = ${orderId}::uuid),
      mails AS MATERIALIZED (
        SELECT CASE payload ->> 'kind' WHEN 'receipt' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS type FROM outbox_tasks
        WHERE task_id > ${orderId}::uuid AND task_type = 'email' AND strpos(concat(payload ->> 'subject', payload ->> 'text'), ${orderId}) > 0),
      effects AS (
        SELECT type FROM mails
        UNION SELECT 'OrderPlaced' FROM reserved
        UNION SELECT ended FROM reserved, unnest(ARRAY['OrderCancelled', 'OrderRefunded']) AS ended WHERE status = 'released'),
      told AS (
        SELECT type, version FROM written
        UNION ALL SELECT type, 0 FROM booked
        UNION ALL SELECT NULL, version FROM consumer_cursors WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text)
      SELECT coalesce(json_agg(DISTINCT type) FILTER (WHERE type IS NOT NULL), '[]') AS types, coalesce(max(told.version), 0)::int4 AS version,
             (SELECT coalesce(json_object_agg(type, last), '{}')
              FROM (SELECT type, max(version) AS last FROM written GROUP BY type) AS lasts) AS versions,
             (SELECT coalesce(json_agg(type), '[]') FROM mails) AS mails,
             (SELECT coalesce(json_agg(type), '[]') FROM effects) AS effects,
             EXISTS (SELECT FROM payments AS p JOIN idempotency_keys AS k ON k.subject_id = p.id
                     WHERE p.order_id = ${orderId}::uuid AND k.response_body LIKE '%"status":"paid"%') AS "isAnsweredPaid",
             ((SELECT count(DISTINCT version) FROM written WHERE version > 1)
              + (SELECT count(*) FROM booked WHERE type NOT IN (SELECT type FROM written))
              + greatest(0, declines.told - (SELECT count(*) FROM written WHERE type = 'PaymentDeclined')))::int4 AS known,
             declines.late::int4 AS "lateDeclines", o.updated_at > ${sql.literal(keptSince("event_log"))} AS "isKept", o.version AS "rowVersion", o.status
      FROM orders AS o LEFT JOIN told ON true
      CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE NOT is_late) AS told, count(*) FILTER (WHERE is_late) AS late
        FROM (SELECT p.status = 'declined' AND p.updated_at > o.updated_at + ${transactionSeconds}::int4 * interval '1 second' AS is_late
              FROM payments AS p WHERE p.order_id = o.id AND p.decline_reason IS NOT NULL) AS declined) AS declines
      WHERE o.id = ${orderId}::uuid GROUP BY o.id, declines.told, declines.late`)
  )
})

/** Above the time from the order's row to its payment's in one transaction, which writes the time of each. */
const transactionSeconds = 10
