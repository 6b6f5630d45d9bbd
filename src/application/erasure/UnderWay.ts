/**
 * What is under way of some orders. Until it has ended, something still needs the customer's id: a mail has to be addressed, an event has to be
 * sent or applied as it was written. Each thing is named with the command that decides it.
 */
import { Effect, Schema } from "effect"
import { orderAggregate } from "../../domain/Events.ts"
import * as Retention from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { emailType } from "../tasks/Email.ts"

/** One thing that is under way, and what decides it. */
export const Pending = Schema.Struct({ orderId: Schema.String, what: Schema.String, command: Schema.String })
export type Pending = typeof Pending.Type
const allPending = Rows.all(Pending)

/** A mail about an order, by its task. `begun` is false until its first send. */
export interface Mail {
  readonly taskId: string
  readonly orderId: string
  readonly state: string
  readonly begun: boolean
}
const allMails = Rows.all(
  Schema.Struct({ taskId: Schema.String, orderId: Schema.String, state: Schema.String, begun: Schema.Boolean })
)

/**
 * The mails about the orders, locked: none of them is begun, or sent again, before the transaction ends. The task has the id of its event. The ledger keeps
 * these ids, also when the archive has dropped the event; billing may lack an event, and then it is a dead letter.
 */
export const mailsOf = Effect.fnUntraced(function* (orderIds: ReadonlyArray<string>) {
  const { sql } = yield* Transaction
  const ids = [...orderIds]
  return yield* allMails(sql`
    WITH asked AS MATERIALIZED (
      SELECT order_id::text AS "orderId", event_id::text AS key FROM billing_ledger WHERE order_id = ANY(${ids}::uuid[])
      UNION SELECT aggregate_id, event_id::text FROM event_log
            WHERE aggregate_id = ANY(${ids}::text[]) AND aggregate_type = ${orderAggregate} AND event_type IN ('OrderPaid', 'OrderRefunded')
      UNION SELECT aggregate_id, event_id::text FROM outbox_dead_letters WHERE aggregate_id = ANY(${ids}::text[])
      UNION SELECT aggregate_id, event_id FROM inbox_dead_letters WHERE aggregate_id = ANY(${ids}::text[]))
    SELECT t.task_id::text AS "taskId", asked."orderId", t.state,
           EXISTS (SELECT FROM mail_deliveries AS m WHERE m.task_id = t.task_id) AS begun
    FROM asked JOIN outbox_tasks AS t ON t.task_type = ${emailType.name} AND t.idempotency_key = asked.key
    -- By their keys: Postgres could read all tasks instead, for each batch.
    WHERE t.idempotency_key = ANY(ARRAY(SELECT key FROM asked))
    ORDER BY t.task_id FOR UPDATE OF t`)
})

/** Whether the mail is sent or given up, for good or until an operator wants it otherwise. */
export const isFinished = ({ state }: Mail): boolean => state === "completed" || state === "cancelled"

const pendingMail = ({ begun, orderId, state, taskId }: Mail): Pending => ({
  orderId,
  what: state === "dead" ? `mail ${taskId} was not sent` : `mail ${taskId} waits to be sent`,
  command: begun
    ? `paid-once mail retry ${taskId}, or mail resolve ${taskId} --as given-up`
    : `paid-once tasks show ${taskId}, or tasks cancel ${taskId}`
})

/**
 * What is under way of the orders. A recovery of a payment is not asked for: it has no id of a customer, and it ends with its payment.
 *
 * A consumer that has not come to an order's last event is behind. So a mail that nobody has asked for yet is found, too. Versions that an
 * operator has discarded at the outbox never come. Neither do events that are so old that the topic has them no more.
 */
export const of = Effect.fnUntraced(function* (
  orderIds: ReadonlyArray<string>,
  mails: ReadonlyArray<Mail>,
  consumers: ReadonlyArray<string>
) {
  const { sql } = yield* Transaction
  const ids = [...orderIds]
  const found = yield* allPending(sql`
    WITH queued AS MATERIALIZED (
      SELECT aggregate_id AS id, event_id::text AS event FROM outbox_events
      WHERE aggregate_type = ${orderAggregate} AND aggregate_id = ANY(${ids}::text[])),
    held AS MATERIALIZED (
      SELECT aggregate_id AS id, event_id::text AS event FROM outbox_holds
      WHERE aggregate_type = ${orderAggregate} AND aggregate_id = ANY(${ids}::text[])),
    stuck AS MATERIALIZED (
      SELECT aggregate_id AS id, event_id AS event, consumer_name AS consumer, status FROM inbox_holds WHERE aggregate_id = ANY(${ids}::text[]))
    SELECT id::text AS "orderId", 'it is pending' AS what, 'its page on the console, or POST /orders/' || id || '/cancel' AS command
    FROM orders AS o WHERE id = ANY(${ids}::uuid[]) AND status = 'pending'
    UNION ALL
    SELECT order_id::text, 'payment ' || id || ' is ' || status,
           CASE status WHEN 'manual' THEN 'paid-once payments settle ' ELSE 'paid-once payments show ' END || id
    FROM payments WHERE order_id = ANY(${ids}::uuid[]) AND status IN ('charging', 'refunding', 'manual')
    UNION ALL
    SELECT id, 'event ' || event || ' is not sent', 'paid-once outbox status' FROM queued WHERE id NOT IN (SELECT id FROM held)
    UNION ALL
    SELECT id, 'the broker has refused event ' || event, 'paid-once outbox retry ' || event || ', or outbox discard ' || event FROM held
    UNION ALL
    SELECT id, consumer || CASE status WHEN 'gap' THEN ' waits for what comes before event ' ELSE ' could not apply event ' END || event,
           CASE status WHEN 'gap' THEN format('paid-once inbox skip %s %s', consumer, event)
                ELSE format('paid-once inbox retry %1$s %2$s, or inbox discard %1$s %2$s', consumer, event) END
    FROM stuck
    UNION ALL
    SELECT o.id::text, consumer || ' has not come to its last event', 'paid-once consumers lag'
    FROM orders AS o CROSS JOIN unnest(${[...consumers]}::text[]) AS consumer
    WHERE o.id = ANY(${ids}::uuid[])
      AND o.updated_at >= ${sql.literal(Retention.keptSince("processed_events"))}
      AND o.id::text NOT IN (SELECT id FROM queued UNION ALL SELECT id FROM held)
      AND (o.id::text, consumer) NOT IN (SELECT id, s.consumer FROM stuck AS s)
      AND EXISTS (
        SELECT FROM generate_series(
          1 + coalesce((SELECT version FROM consumer_cursors AS c WHERE c.consumer_name = consumer AND c.aggregate_id = o.id::text
                          AND c.aggregate_type = ${orderAggregate}), 0), o.version) AS missing
        WHERE NOT EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.aggregate_id = o.id::text AND d.aggregate_version = missing
                            AND d.aggregate_type = ${orderAggregate} AND d.status = 'discarded'))
    ORDER BY 1, 2`)
  return [...found, ...mails.filter((mail) => !isFinished(mail)).map(pendingMail)]
})
