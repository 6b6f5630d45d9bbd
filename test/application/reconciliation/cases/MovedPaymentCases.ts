/** The row of a payment was moved to another order, or says of itself what no other book tells. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Break, Refusal } from "./Case.ts"
import { forget, inFlight, moved } from "./Steps.ts"

export const movedPaymentCases: ReadonlyArray<Refusal> = [
  ...(["pending", "cancelled"] as const).flatMap((to) => [
    {
      of: `the payment of a paid order was moved to a ${to} one, and its refund begun`,
      rule: "recovery-missing",
      why: to === "pending" ? /only the payment's row asks for a refund/ : /for another order/,
      broken: moved(to, "status = 'refunding', refund_begun_at = clock_now()")
    },
    {
      of: `the payment of a paid order was moved to a ${to} one, and waits for a person`,
      rule: "gateway-capture-unrecorded",
      why: /for another order/,
      broken: moved(to, "status = 'manual', captured_minor = 0, captured_at = NULL")
    },
    {
      of: `the payment of a paid order was moved to a ${to} one, and is being charged`,
      rule: "recovery-missing",
      why: /for another order/,
      broken: moved(to, "status = 'charging', captured_minor = 0, captured_at = NULL")
    },
    {
      of: `the payment of a paid order was moved to a ${to} one, and was declined`,
      rule: "gateway-capture-unrecorded",
      why: /for another order/,
      broken: moved(to, "status = 'declined', captured_minor = 0, captured_at = NULL, decline_reason = 'no funds'")
    },
    {
      of: `the payment of a paid order was moved to a ${to} one, and its key and entry are lost`,
      rule: `captured-order-${to}`,
      why: /for another order/,
      broken: ((books, sql) =>
        Effect.gen(function* () {
          yield* sql`DELETE FROM idempotency_keys`
          yield* sql`DELETE FROM billing_ledger WHERE order_id = ${books.paid.orderId}::uuid`
          yield* sql`UPDATE payments SET order_id = ${books[to]}::uuid WHERE id = ${books.paid.paymentId}::uuid`
        })) satisfies Break
    },
    {
      of: `a forgotten payment was moved to a younger order that is ${to}`,
      rule: `captured-order-${to}`,
      why: /or before this one/,
      broken: ((books, sql) =>
        Effect.gen(function* () {
          yield* forget(books, sql)
          yield* sql`UPDATE orders SET created_at = created_at + interval '1 hour' WHERE id = ${books[to]}::uuid`
          yield* sql`UPDATE payments SET order_id = ${books[to]}::uuid WHERE id = ${books.paid.paymentId}::uuid`
        })) satisfies Break
    },
    {
      of: `the entry of a sale is lost, its order's row says ${to}, and its payment's row refunding`,
      rule: "recovery-missing",
      why: /only the payment's row asks for a refund|OrderPaid was told of this payment before/,
      broken: (({ paid: { orderId, paymentId } }, sql) =>
        Effect.gen(function* () {
          yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
          yield* sql`UPDATE orders SET status = ${to} WHERE id = ${orderId}::uuid`
          yield* sql`UPDATE payments SET status = 'refunding', refund_begun_at = clock_now() WHERE id = ${paymentId}::uuid`
        })) satisfies Break
    }
  ]),
  ...[1, 2].map((version) => ({
    of: `the payment of a paid order was moved to a pending one, whose row says paid, with version ${version}`,
    rule: version === 1 ? "status-unannounced" : "event-missing",
    why: /for another order/,
    broken: (({ paid, pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE payments SET order_id = ${pending}::uuid WHERE id = ${paid.paymentId}::uuid`
        yield* sql`UPDATE orders SET status = 'paid', version = ${version}::int4 WHERE id = ${pending}::uuid`
      })) satisfies Break
  })),
  ...(
    [
      ["is lost", (sql, id) => sql`DELETE FROM payments WHERE id = ${id}::uuid`],
      [
        "says declined",
        (sql, id) => sql`UPDATE payments SET status = 'declined', decline_reason = 'no funds' WHERE id = ${id}::uuid`
      ],
      ["was moved", (sql, id, other) => sql`UPDATE payments SET order_id = ${other}::uuid WHERE id = ${id}::uuid`]
    ] satisfies ReadonlyArray<
      readonly [string, (sql: SqlClient.SqlClient, id: string, other: string) => Effect.Effect<unknown, unknown>]
    >
  ).map(([what, damage]) => ({
    of: `a payment is in flight, its row ${what}, and the row of its order says cancelled, with a version more`,
    rule: "event-missing",
    why: /a payment of the order has no outcome yet/,
    broken: (({ pending }, sql) =>
      Effect.gen(function* () {
        const { orderId, paymentId } = yield* inFlight("error-after")
        yield* damage(sql, paymentId, pending)
        // It was placed a minute before.
        yield* sql`UPDATE orders SET status = 'cancelled', version = 2, updated_at = updated_at - interval '1 minute' WHERE id = ${orderId}::uuid`
      })) satisfies Break
  }))
]
