/** Books that differ between the gateway's ledger and the payments. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import * as Subscribed from "../../../support/Subscribed.ts"
import { chargeAtGateway, deliver, refundAtGateway } from "../Books.ts"
import type { Case } from "./Case.ts"
import { asked, cancelledInFlight, capture, declineLate } from "./Steps.ts"

export const gatewayCases: ReadonlyArray<Case> = [
  {
    of: "the gateway has charged under a key that is no payment of ours",
    rule: "gateway-charge-unknown",
    broken: () => chargeAtGateway("a-key-of-nobody", 100),
    by: "person"
  },
  {
    of: "the gateway has charged under the id of a payment that nobody knows",
    rule: "gateway-charge-unknown",
    broken: () => chargeAtGateway(Subscribed.newId(), 100),
    by: "person"
  },
  {
    of: "a payment waits for a person, and the gateway has captured it",
    rule: "gateway-capture-unrecorded",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${pending}::uuid, 'manual', 'pm_ok', 100, 'EUR', clock_now(), clock_now(), clock_now())`
        yield* asked(pending, id)
        yield* chargeAtGateway(id, 100)
      }),
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const [row] = yield* sql`SELECT status FROM orders WHERE id = ${pending}::uuid`
        assert.deepStrictEqual(row, { status: "paid" })
      })
  },
  {
    of: "the gateway has captured a payment whose order was paid by hand meanwhile",
    rule: "gateway-capture-unrecorded",
    also: ["paid-without-capture", "status-unannounced", "billing-entry-missing"],
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${pending}::uuid, 'manual', 'pm_ok', 100, 'EUR', clock_now(), clock_now(), clock_now())`
        yield* chargeAtGateway(id, 100)
        yield* sql`UPDATE orders SET status = 'paid' WHERE id = ${pending}::uuid`
      }),
    by: "person"
  },
  {
    of: "an order counts as paid, and the gateway has lost the capture",
    rule: "gateway-capture-missing",
    broken: ({ paid }, sql) => sql`DELETE FROM sandbox_gateway.charges WHERE idempotency_key = ${paid.paymentId}`,
    by: "person"
  },
  {
    of: "the gateway has captured another amount",
    rule: "gateway-amount-differs",
    broken: ({ paid }, sql) =>
      sql`UPDATE sandbox_gateway.charges SET amount_minor = 99 WHERE idempotency_key = ${paid.paymentId}`,
    by: "person"
  },
  {
    of: "the gateway has captured too much, and has given that back, as by hand says, and the receipt was lost",
    rule: "mail-missing",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE sandbox_gateway.charges SET amount_minor = 130 WHERE idempotency_key = ${paid.paymentId}`
        yield* refundAtGateway(paid.paymentId, "re_1", 30)
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
      }),
    by: "use case"
  },
  {
    of: "the gateway has forgotten the key, and charged again",
    rule: "gateway-charged-twice",
    broken: ({ paid }) => chargeAtGateway(paid.paymentId, 100),
    by: "person"
  },
  {
    of: "a person has refunded the charge at the gateway, and its report was lost",
    rule: "gateway-refund-unrecorded",
    broken: ({ paid }) => refundAtGateway(paid.paymentId, "re_1", 100),
    by: "use case",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const [row] = yield* sql`SELECT status FROM orders WHERE id = ${paid.orderId}::uuid`
        assert.deepStrictEqual(row, { status: "refunded" })
      })
  },
  ...[0, 60].map((seconds): Case => ({
    of: `a payment was declined ${seconds} s after its order was cancelled, and the gateway has captured it`,
    rule: "gateway-capture-unrecorded",
    broken: () =>
      Effect.flatMap(cancelledInFlight("error-after"), ({ paymentId }) =>
        Effect.andThen(declineLate(paymentId, seconds), deliver)
      ),
    by: "use case"
  })),
  {
    of: "a declined payment of a paid order was captured late, and a person has given it back at the gateway",
    rule: "gateway-refund-unrecorded",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        const id = yield* capture(paid.orderId, "refunded")
        yield* sql`UPDATE payments SET status = 'manual', decline_reason = 'no funds', refunded_minor = 0 WHERE id = ${id}::uuid`
        yield* refundAtGateway(id, "re_3", 100)
      }),
    by: "use case",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const [row] = yield* sql`SELECT status FROM orders WHERE id = ${paid.orderId}::uuid`
        assert.deepStrictEqual(row, { status: "paid" })
      })
  },
  {
    of: "a refund was never made at the gateway",
    rule: "gateway-refund-missing",
    broken: ({ refunded }, sql) => sql`DELETE FROM sandbox_gateway.refunds WHERE charge_key = ${refunded.paymentId}`,
    by: "person"
  },
  {
    of: "a part was refunded at the gateway",
    rule: "gateway-refund-differs",
    broken: ({ paid }) => refundAtGateway(paid.paymentId, "re_1", 40),
    by: "person"
  },
  {
    of: "a part was refunded at the gateway, and then the rest, as by hand says",
    rule: "gateway-refund-unrecorded",
    broken: ({ paid }) =>
      Effect.andThen(refundAtGateway(paid.paymentId, "re_1", 40), refundAtGateway(paid.paymentId, "re_2", 60)),
    by: "use case",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT o.status, p.status AS payment FROM orders AS o JOIN payments AS p ON p.order_id = o.id WHERE o.id = ${paid.orderId}::uuid`
        assert.deepStrictEqual(rows, [{ status: "refunded", payment: "refunded" }])
      })
  },
  {
    of: "a charge that was declined was refunded at the gateway",
    rule: "gateway-refund-differs",
    broken: ({ declined }, sql) =>
      Effect.flatMap(
        sql<{ readonly id: string }>`SELECT id::text FROM payments WHERE order_id = ${declined}::uuid`,
        ([payment]) => refundAtGateway(payment!.id, "re_1", 100)
      ),
    by: "person"
  },
  {
    of: "the charge was refunded at the gateway in another currency",
    rule: "gateway-refund-differs",
    broken: ({ paid }, sql) =>
      Effect.andThen(
        refundAtGateway(paid.paymentId, "re_1", 100),
        sql`UPDATE sandbox_gateway.refunds SET currency = 'USD' WHERE idempotency_key = 're_1'`
      ),
    by: "person"
  },
  {
    of: "a refunded order's payment says captured",
    rule: "gateway-refund-unrecorded",
    also: ["refunded-without-refund"],
    broken: ({ refunded }, sql) =>
      sql`
        UPDATE payments SET status = 'captured', refunded_minor = 0, refund_begun_at = NULL WHERE id = ${refunded.paymentId}::uuid`,
    by: "use case"
  }
]
