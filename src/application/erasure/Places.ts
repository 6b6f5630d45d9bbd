/**
 * The places that have a customer's id, and how it leaves them (docs/erasure.md).
 *
 * Each order gets an id of its own in the customer's place: nothing tells any more which orders were one customer's. Nothing else of a row changes,
 * neither its version nor its times: the books compare them.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { orderAggregate } from "../../domain/Events.ts"
import { type CustomerId, OrderId } from "../../domain/Ids.ts"
import type { Erasable } from "../../operations/refill/Refill.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Retention from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { Mail } from "./UnderWay.ts"

/** The action of the entries in the audit, one for each order. */
export const auditAction = "erase"
export const auditSubject = "order"

/** The field that an erasure changes, in events and answers. */
export const customerField = "customerId"

/** The customer's field in an event's data and in an answer, as `JSON.stringify` writes it. */
const fieldOf = (customerId: string) => `"${customerField}":${JSON.stringify(customerId)}`

/** Whether the id is one that an erasure has given to an order. */
export const isErased = (customerId: string): boolean =>
  /^erased-[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[\da-f]{4}-[\da-f]{12}$/.test(customerId)

/** The id of an order, as the topic has it. */
const isOrderId = Schema.is(OrderId)
const foundIds = Rows.all(Schema.Struct({ id: Schema.String }))

/** What {@link erase} takes out of the archive, for a refill from the topic. It locks the orders against an erasure, which locks them `FOR UPDATE`. */
export const erasable: Erasable = {
  field: customerField,
  erasedOf: Effect.fnUntraced(function* (events) {
    const { sql } = yield* Transaction
    const ids = events.flatMap(({ aggregateId, aggregateType }) =>
      aggregateType === orderAggregate && isOrderId(aggregateId) ? [aggregateId] : []
    )
    // In the order in which an erasure locks them.
    const orders = yield* foundIds(sql`
      WITH locked AS MATERIALIZED (
        SELECT id, customer_id FROM orders WHERE id = ANY(${ids}::uuid[]) ORDER BY id FOR KEY SHARE)
      SELECT id::text AS id FROM locked WHERE customer_id = 'erased-' || id`)
    return new Set(orders.map(({ id }) => id))
  })
}

/** SQL: the same field of the order with this id, once it is erased. */
const erasedField = (orderId: string) => `('"${customerField}":"erased-' || ${orderId} || '"')`

/**
 * Takes the customer's id out of the orders, of the archive of their events, of discarded dead letters, and of mails that are sent or given up. The caller
 * has locked the orders and the mails and has seen that nothing is under way.
 *
 * The mail server's words may have the address in any form, so those about the mails go, too. A mail's task keeps its key: its event asks for no
 * second one.
 */
export const erase = Effect.fnUntraced(function* (
  customerId: CustomerId,
  orderIds: ReadonlyArray<string>,
  mails: ReadonlyArray<Mail>
) {
  const { sql } = yield* Transaction
  const ids = [...orderIds]
  const field = fieldOf(customerId)
  const erased = sql.literal(erasedField("aggregate_id"))
  const ofOrders = sql`aggregate_id = ANY(${ids}::text[])`
  yield* sql`
    UPDATE orders SET customer_id = 'erased-' || id WHERE id = ANY(${ids}::uuid[]) AND customer_id = ${customerId}`
  yield* sql`
    UPDATE event_log SET data = replace(data::text, ${field}, ${erased})::json
    WHERE ${ofOrders} AND aggregate_type = ${orderAggregate} AND strpos(data::text, ${field}) > 0`
  yield* sql`
    UPDATE outbox_dead_letters SET data = replace(data::text, ${field}, ${erased})::json
    WHERE ${ofOrders} AND aggregate_type = ${orderAggregate} AND status = 'discarded'`
  // A record that nobody can read need not be UTF-8.
  yield* sql`
    UPDATE inbox_dead_letters
    SET record_value = decode(replace(encode(record_value, 'hex'), encode(convert_to(${field}, 'UTF8'), 'hex'),
                                      encode(convert_to(${erased}, 'UTF8'), 'hex')), 'hex')
    WHERE ${ofOrders} AND status = 'discarded'`
  const taskIds = mails.map(({ taskId }) => taskId)
  const given = sql`unnest(${taskIds}::uuid[], ${mails.map(({ orderId }) => orderId)}::text[]) AS g(task_id, order_id)`
  yield* sql`
    UPDATE mail_deliveries AS m
    SET recipient = 'erased-' || g.order_id || '@' || split_part(m.recipient, '@', 2), last_error = NULL
    FROM ${given} WHERE m.task_id = g.task_id AND m.task_id = ANY(${taskIds}::uuid[])`
  yield* sql`
    UPDATE outbox_tasks AS t
    SET payload = jsonb_set(t.payload::jsonb, '{to}', to_jsonb('erased-' || g.order_id || '@' || split_part(t.payload ->> 'to', '@', 2)))::json,
        last_error = NULL, history = '[]'
    FROM ${given} WHERE t.task_id = g.task_id AND t.task_id = ANY(${taskIds}::uuid[]) AND t.payload ->> 'to' IS NOT NULL`
})

/** Answers to repeated requests, which are kept byte for byte. */
export const Answers = Schema.Struct({
  count: Schema.Int,
  /** When the last of them is deleted. Null where none is left, or where they are kept for ever. */
  until: Schema.NullOr(Schema.String),
  /** How long the service keeps answers, in days; 0 for ever. Null where no process of it has noted that. */
  keptDays: Schema.NullOr(Schema.Int)
})
const oneAnswers = Rows.one(Answers)

/** The answers that have the customer's id: of his orders, and of orders that were his until an erasure, which the audit knows. */
export const answers = Effect.fnUntraced(function* (customerId: CustomerId) {
  const sql = yield* SqlClient.SqlClient
  const days = (yield* Retention.noted).get("idempotency_keys")?.days ?? null
  // An answer that is left is younger than its retention, and its order was erased after it.
  const young =
    days === null || days === 0 ? sql`TRUE` : sql`at > clock_now() - make_interval(hours => 24 * ${days}::int4)`
  return yield* oneAnswers(sql`
    WITH theirs AS MATERIALIZED (
      SELECT id FROM orders WHERE customer_id = ${customerId}
      UNION SELECT CASE WHEN subject = ${auditSubject} THEN subject_id::uuid END FROM operator_audit
            WHERE subject = ${auditSubject} AND action = ${auditAction} AND ${young}),
    subjects AS MATERIALIZED (
      SELECT id FROM theirs UNION ALL SELECT p.id FROM payments AS p JOIN theirs ON p.order_id = theirs.id),
    found AS (
      SELECT k.created_at FROM idempotency_keys AS k JOIN subjects ON k.subject_id = subjects.id
      WHERE strpos(k.response_body, ${fieldOf(customerId)}) > 0)
    SELECT count(*)::int4 AS count, ${days}::int4 AS "keptDays",
           CASE WHEN ${days}::int4 > 0 THEN ${sql.literal(isoTime(`(max(created_at) + make_interval(hours => 24 * ${days ?? 0}))`))} END AS until
    FROM found`)
}, Effect.orDie)
