/** Payments ↔ orders, and payments ↔ their recovery. Every use case changes an order and its payment in one transaction. */
import { Effect } from "effect"
import type { Statement } from "effect/sql"
import { PaymentId } from "../../../domain/Ids.ts"
import { type Books } from "../Books.ts"
import { moneyText } from "../MoneyText.ts"
import { type Scope, type SqlRule, within } from "../SqlRule.ts"

/** An order beside one of its payments, where `where` holds. `expected` and `found` are SQL. */
const pair = (expected: string, found: string, where: string) => (sql: Statement.Constructor, scope: Scope) =>
  sql`
  SELECT o.id::text AS key, p.id::text AS id, o.id::text AS "orderId", p.id::text AS "paymentId",
         ${sql.literal(expected)} AS expected, ${sql.literal(found)} AS found
  FROM orders AS o JOIN payments AS p ON p.order_id = o.id
  WHERE ${within(sql, "o.id", scope)} AND ${sql.literal(where)}`

/** An order without the payment that its status speaks of. */
const without = (status: string, expected: string, payment: string) => (sql: Statement.Constructor, scope: Scope) =>
  sql`
  SELECT o.id::text AS key, o.id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
         ${expected}::text AS expected, 'no such payment' AS found
  FROM orders AS o
  WHERE ${within(sql, "o.id", scope)} AND o.status = ${status}
    AND NOT EXISTS (SELECT FROM payments AS p WHERE p.order_id = o.id AND p.decline_reason IS NULL AND ${sql.literal(payment)})`

const books = "payments ↔ orders"

export const paymentRules = ({ giveBack, markPaid, markRefunded, takeUp }: Books): ReadonlyArray<SqlRule> => [
  {
    name: "captured-order-pending",
    books,
    means: "the customer has paid, and the order does not know",
    repair: "the order is marked as paid, and OrderPaid is appended",
    find: pair("'the order is paid'", "'the order is pending'", "p.status = 'captured' AND o.status = 'pending'"),
    mend: ({ paymentId }) => markPaid(PaymentId.make(paymentId!))
  },
  {
    name: "captured-order-cancelled",
    books,
    means: "the money of a cancelled order was kept",
    repair: "the payment becomes refunding, and its recovery asks for the refund, under the refund's own key",
    find: pair(
      "'the payment is given back'",
      "'the payment is captured'",
      "p.status = 'captured' AND o.status = 'cancelled'"
    ),
    mend: ({ paymentId }) => giveBack(PaymentId.make(paymentId!))
  },
  {
    name: "refunded-order-paid",
    books,
    means: "the money went back, and the order still counts as revenue",
    repair: "the order is marked as refunded, and OrderRefunded is appended",
    find: pair(
      "'the order is refunded'",
      "'the order is paid'",
      `p.status = 'refunded' AND p.decline_reason IS NULL AND o.status = 'paid'
       AND NOT EXISTS (SELECT FROM payments AS other
                       WHERE other.order_id = o.id AND other.captured_minor > other.refunded_minor AND other.decline_reason IS NULL)`
    ),
    mend: ({ paymentId }) => markRefunded(PaymentId.make(paymentId!))
  },
  {
    name: "paid-without-capture",
    books,
    means: "goods leave, and no money has come",
    repair: undefined,
    byHand:
      "look with paid-once payments check at each payment of the order, and with paid-once events search --order at which events were published; take the row that was changed from a backup: docs/restore.md",
    find: without("paid", "a captured payment", "p.captured_minor > 0")
  },
  {
    name: "refunded-without-refund",
    books,
    means: "the customer was told of a refund that nobody has made",
    repair: undefined,
    byHand:
      "paid-once events search --order tells whether OrderRefunded was published: if not, the order's row is wrong, so set its status with psql, and refund nothing; else look with paid-once payments check, and refund the payment on the gateway's pages if it has not: docs/payments.md",
    find: without("refunded", "a refunded payment", "p.status = 'refunded'")
  },
  {
    name: "payment-amount-differs",
    books,
    means: "the customer pays another amount than the order's",
    repair: undefined,
    byHand:
      "paid-once events search --order names OrderPlaced, paid-once events show tells its amount, and paid-once payments check which one was charged; set the wrong row right with psql: docs/operations.md",
    find: pair(
      moneyText("o.total_amount_minor", "o.currency"),
      moneyText("p.amount_minor", "p.currency"),
      "p.status <> 'declined' AND (p.amount_minor <> o.total_amount_minor OR p.currency <> o.currency)"
    )
  },
  {
    name: "recovery-missing",
    books: "payments ↔ tasks",
    means: "nobody looks for the payment's outcome: money may have moved, and no book tells",
    repair:
      "its recovery is enqueued, with the same key; where that has ended before, or no request is known that asked for the charge, the payment becomes manual",
    find: pair(
      "'a recovery'",
      "'the payment is ' || p.status || ', and nobody looks for its outcome'",
      `p.status IN ('charging', 'refunding')
       AND NOT EXISTS (SELECT FROM outbox_tasks AS t
                       WHERE t.task_type = 'payment.recover' AND t.state IN ('pending', 'processing', 'failed', 'dead')
                         AND t.idempotency_key = p.id || CASE p.status WHEN 'refunding' THEN '-refund' ELSE '' END)`
    ),
    mend: ({ paymentId }) => Effect.asVoid(takeUp(PaymentId.make(paymentId!)))
  }
]
