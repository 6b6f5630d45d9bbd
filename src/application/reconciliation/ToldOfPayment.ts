/** What other books tell of a payment, whatever its row says now: which order it pays, and what its client was answered. */
import { Effect, Schema } from "effect"
import type { OrderId, PaymentId } from "../../domain/Ids.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { CantMend } from "./Difference.ts"

const cantMend = (reason: string) => new CantMend({ reason })

/**
 * Fails where another book tells that the payment pays another order: its row was moved, and neither order may follow it. No index leads there from
 * ledger and archive, for only such a repair asks: it reads the ledger once, and the archive from the payment on, for ids are by time.
 */
export const mayFollow = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const { sql } = yield* Transaction
  const [other] = yield* Effect.orDie(
    sql`
      SELECT FROM payments AS p JOIN orders AS o ON o.id = ${orderId}::uuid WHERE p.id = ${paymentId}::uuid AND p.created_at < o.created_at
      UNION ALL SELECT FROM idempotency_keys WHERE subject_id = ${paymentId}::uuid AND strpos(lower(path), ${orderId}) = 0
      UNION ALL SELECT FROM billing_ledger WHERE payment_id = ${paymentId}::uuid AND order_id <> ${orderId}::uuid
      UNION ALL SELECT FROM outbox_status
      WHERE event_id > ${paymentId}::uuid AND data ->> 'paymentId' = ${paymentId} AND aggregate_id <> ${orderId} LIMIT 1`
  )
  if (other !== undefined) {
    return yield* cantMend(
      "the payment was begun, told or booked for another order, or before this one: a row is what is wrong"
    )
  }
})

/** Fails where the order's sale names another payment: this one did not pay it, and its refund is not the order's. */
export const mayPay = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const { sql } = yield* Transaction
  const [other] = yield* Effect.orDie(
    sql`
      SELECT FROM billing_ledger WHERE order_id = ${orderId}::uuid AND debit_account = 'gateway' AND payment_id <> ${paymentId}::uuid
      UNION ALL SELECT FROM outbox_status
      WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text AND event_type = 'OrderPaid' AND data ->> 'paymentId' <> ${paymentId} LIMIT 1`
  )
  if (other !== undefined) return yield* cantMend("the order was paid by another payment: a row is what is wrong")
})

const believedRow = Rows.one(
  Schema.Struct({
    wasDeclined: Schema.Boolean,
    isCaptured: Schema.Boolean,
    /** Whether OrderPaid was told of it. */
    isPaidTold: Schema.Boolean,
    /** Whether PaymentDeclined was told of it. */
    isDeclineTold: Schema.Boolean,
    /** Whether its request is known. That of an open payment is never dropped. */
    hasKey: Schema.Boolean,
    /** The final answer of that request, if it has one. */
    answer: Schema.NullOr(Schema.Int)
  })
)

/** Payment Required: the answer to a payment that was declined. */
const declined = 402

export const onlyItsRowDeclines =
  "only its own row says that the payment was declined: set it back to manual with psql, and look with paid-once payments check: docs/payments.md"

/** Fails if events, ledger or its client's answer contradict the payment's row. */
export const mayBelieve = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const { sql } = yield* Transaction
  const payment = yield* Effect.orDie(
    believedRow(sql`
      WITH told AS MATERIALIZED (
        SELECT event_type AS type FROM outbox_status
        WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text AND data ->> 'paymentId' = ${paymentId}::text
        UNION SELECT 'OrderPaid' FROM billing_ledger
        WHERE order_id = ${orderId}::uuid AND payment_id = ${paymentId}::uuid AND debit_account = 'gateway'),
      asked AS MATERIALIZED (SELECT response_status AS status FROM idempotency_keys WHERE subject_id = ${paymentId}::uuid)
      SELECT decline_reason IS NOT NULL AS "wasDeclined", captured_minor > 0 AS "isCaptured",
             EXISTS (SELECT FROM told WHERE type = 'OrderPaid') AS "isPaidTold",
             EXISTS (SELECT FROM told WHERE type = 'PaymentDeclined') AS "isDeclineTold",
             EXISTS (SELECT FROM asked) AS "hasKey", (SELECT max(status) FROM asked)::int4 AS answer
      FROM payments WHERE id = ${paymentId}::uuid`)
  )
  const { answer, hasKey, isCaptured, isDeclineTold, isPaidTold, wasDeclined } = payment
  if (isPaidTold) return yield* cantMend("OrderPaid was told of this payment before: a row is what is wrong")
  if (wasDeclined) {
    if (!isDeclineTold && hasKey && answer !== declined) return yield* cantMend(onlyItsRowDeclines)
  } else if (isDeclineTold) {
    return yield* cantMend("PaymentDeclined was told of this payment before: its row is what is wrong")
  } else if (!isCaptured && answer !== null) {
    return yield* cantMend(
      `its request was answered with ${answer}: the payment's row is what is wrong, set it right with psql`
    )
  }
  return payment
})
