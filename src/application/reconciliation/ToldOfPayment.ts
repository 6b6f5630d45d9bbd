/** A payment in the other books, whatever its row says now: the order that it pays, and the answer to its client. */
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

const witnessesRow = Rows.one(
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
export const declined = 402

const witnessesOf = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const { sql } = yield* Transaction
  return yield* Effect.orDie(
    witnessesRow(sql`
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
})
type Witnesses = Effect.Success<ReturnType<typeof witnessesOf>>

/** Fails where events or its client's answer tell of a decline that its row does not have. */
const mustNotBeDeclined = ({ answer, isDeclineTold, wasDeclined }: Witnesses) =>
  wasDeclined || !(isDeclineTold || answer === declined)
    ? Effect.void
    : Effect.fail(
        cantMend(
          isDeclineTold
            ? "PaymentDeclined was told of this payment before: its row is what is wrong"
            : `its request was answered with ${declined}: the payment's row is what is wrong, set it right with psql`
        )
      )

/** Fails where nothing but its row says that the payment was asked for, for this order: the row may have been moved. */
export const mustBeAsked = ({ hasKey, wasDeclined }: Witnesses) =>
  wasDeclined || hasKey
    ? Effect.void
    : Effect.fail(
        cantMend(
          "no request is known that asked for the payment: its key is lost, or its row was moved to this order; a person decides: docs/reconciliation.md"
        )
      )

/** Fails where another book contradicts that the payment has paid the order. It also fails where only its row knows of a request. */
export const mayHavePaid = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  yield* mayPay(orderId, paymentId)
  const payment = yield* witnessesOf(orderId, paymentId)
  yield* mustNotBeDeclined(payment)
  if (!payment.isPaidTold) yield* mustBeAsked(payment)
})

/** Fails if events, ledger or its client's answer contradict the payment's row. */
export const mayBelieve = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const payment = yield* witnessesOf(orderId, paymentId)
  const { answer, isCaptured, isPaidTold } = payment
  if (isPaidTold) return yield* cantMend("OrderPaid was told of this payment before: a row is what is wrong")
  yield* mustNotBeDeclined(payment)
  if (!payment.wasDeclined && !isCaptured && answer !== null) {
    return yield* cantMend(
      `its request was answered with ${answer}: the payment's row is what is wrong, set it right with psql`
    )
  }
  return payment
})

/** Whether its row says that it was declined: its money is none of the order's. */
export const wasDeclined = Effect.fnUntraced(function* (paymentId: PaymentId) {
  const { sql } = yield* Transaction
  const rows = yield* Effect.orDie(
    sql`SELECT FROM payments WHERE id = ${paymentId}::uuid AND decline_reason IS NOT NULL`
  )
  return rows.length > 0
})
