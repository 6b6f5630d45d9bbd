/** Books that differ between orders and payments. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import * as Subscribed from "../../../support/Subscribed.ts"
import { brokenIn, chargeAtGateway, look, refundAtGateway } from "../Books.ts"
import type { Case } from "./Case.ts"
import { asked } from "./Steps.ts"

/** A payment that is under way, as its request has begun it. */
const charging = (order: string, id: string, sql: SqlClient.SqlClient) => sql`
  INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
  VALUES (${id}::uuid, ${order}::uuid, 'charging', 'pm_ok', 100, 'EUR', clock_now(), clock_now(), clock_now())`

export const ordersCases: ReadonlyArray<Case> = [
  {
    of: "the row of a payment is gone, and the ledger has booked it",
    rule: "gateway-charge-unknown",
    also: ["paid-without-capture", "event-differs", "billing-entry-differs"],
    broken: ({ paid }, sql) => sql`DELETE FROM payments WHERE id = ${paid.paymentId}::uuid`,
    by: "person",
    afterwards: ({ paid }) =>
      Effect.gen(function* () {
        const one = (yield* look).items.find(({ rule }) => rule === "gateway-charge-unknown")
        assert.deepInclude(one, {
          id: paid.paymentId,
          orderId: paid.orderId,
          found: "1.00 EUR captured, and another book tells of it for this order: the payment's row is lost"
        })
      })
  },
  ...(["events", "keys"] as const).map((left) => ({
    of: `the row of a payment is gone, the ledger has lost its entry, and the ${left} tell of it`,
    rule: "gateway-charge-unknown",
    also: ["paid-without-capture", "event-differs", "billing-entry-missing"],
    broken: (({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM payments WHERE id = ${paid.paymentId}::uuid`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
        if (left === "events") yield* sql`DELETE FROM idempotency_keys`
        else
          yield* sql`
            UPDATE event_log SET data = jsonb_set(data::jsonb, '{paymentId}', to_jsonb(${Subscribed.newId()}::text))::json
            WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
      })) satisfies Case["broken"],
    by: "person" as const,
    afterwards: (({ paid: { orderId, paymentId: id } }) =>
      Effect.gen(function* () {
        const one = (yield* look).items.find(({ rule }) => rule === "gateway-charge-unknown")
        assert.deepInclude(one, { id, orderId })
      })) satisfies Case["broken"]
  })),
  {
    of: "a payment is captured, and its order pending",
    rule: "captured-order-pending",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${pending}::uuid, 'captured', 'pm_ok', 100, 'EUR', 100, clock_now(), clock_now(), clock_now())`
        yield* chargeAtGateway(id, 100)
        yield* asked(pending, id)
      }),
    by: "use case"
  },
  {
    of: "the payment of a cancelled order is captured",
    rule: "captured-order-cancelled",
    broken: ({ cancelled }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${cancelled}::uuid, 'captured', 'pm_ok', 100, 'EUR', 100, clock_now(), clock_now(), clock_now())`
        yield* chargeAtGateway(id, 100)
        yield* asked(cancelled, id)
      }),
    by: "use case",
    afterwards: ({ cancelled }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT p.status, t.state FROM payments AS p JOIN outbox_tasks AS t ON t.idempotency_key = p.id || '-refund'
          WHERE p.order_id = ${cancelled}::uuid`
        assert.deepStrictEqual(rows, [{ status: "refunding", state: "pending" }])
      })
  },
  {
    of: "a payment is refunded, and its order paid",
    rule: "refunded-order-paid",
    also: [],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          UPDATE payments SET status = 'refunded', refunded_minor = captured_minor, refund_begun_at = clock_now() WHERE id = ${paid.paymentId}::uuid`
        yield* refundAtGateway(paid.paymentId, `${paid.paymentId}-refund`, 100)
      }),
    by: "use case"
  },
  {
    of: "an order is paid by hand, without a payment",
    rule: "paid-without-capture",
    also: ["status-unannounced", "billing-entry-missing"],
    broken: ({ pending }, sql) => sql`UPDATE orders SET status = 'paid' WHERE id = ${pending}::uuid`,
    by: "person"
  },
  {
    of: "an order is refunded by hand, and its payment is not",
    rule: "refunded-without-refund",
    also: ["status-unannounced", "billing-entry-missing", "reservation-left-over"],
    broken: ({ paid }, sql) => sql`UPDATE orders SET status = 'refunded' WHERE id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "a payment has another amount than its order",
    rule: "payment-amount-differs",
    also: ["gateway-amount-differs"],
    broken: ({ paid }, sql) =>
      sql`UPDATE payments SET amount_minor = 90, captured_minor = 90 WHERE id = ${paid.paymentId}::uuid`,
    by: "person"
  },
  {
    of: "a payment is charging, and no request is known that asked for it",
    rule: "recovery-missing",
    broken: ({ pending }, sql) => charging(pending, Subscribed.newId(), sql),
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT status, (SELECT count(*)::int4 FROM outbox_tasks AS t WHERE t.idempotency_key = p.id::text) AS recoveries
          FROM payments AS p WHERE order_id = ${pending}::uuid`
        assert.deepStrictEqual(rows, [{ status: "manual", recoveries: 0 }])
      })
  },
  {
    of: "a payment is charging, and its recovery was deleted",
    rule: "recovery-missing",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* charging(pending, id, sql)
        yield* asked(pending, id)
      }),
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT t.state FROM payments AS p JOIN outbox_tasks AS t ON t.task_type = 'payment.recover' AND t.idempotency_key = p.id::text
          WHERE p.order_id = ${pending}::uuid`
        assert.deepStrictEqual(rows, [{ state: "pending" }])
      })
  },
  {
    of: "a payment is charging, and its recovery has ended",
    rule: "recovery-missing",
    broken: ({ paid, pending }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* charging(pending, id, sql)
        yield* asked(pending, id)
        yield* sql`
          UPDATE outbox_tasks SET idempotency_key = ${id}, state = 'completed', finished_at = clock_now()
          WHERE task_type = 'payment.recover' AND idempotency_key = ${paid.paymentId}`
      }),
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`SELECT status FROM payments WHERE order_id = ${pending}::uuid`
        assert.deepStrictEqual(rows, [{ status: "manual" }])
      })
  },
  {
    of: "the row of a paid order says pending",
    rule: "captured-order-pending",
    also: ["status-unannounced", "billing-entry-unfounded"],
    broken: ({ paid }, sql) => sql`UPDATE orders SET status = 'pending' WHERE id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a paid order comes from an older backup",
    rule: "captured-order-pending",
    also: ["event-without-change", "billing-entry-unfounded"],
    broken: ({ paid }, sql) => sql`UPDATE orders SET status = 'pending', version = 1 WHERE id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a declined order comes from an older backup, and its customer has paid since",
    rule: "captured-order-pending",
    also: ["event-without-change"],
    broken: ({ declined }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${declined}::uuid, 'captured', 'pm_ok', 100, 'EUR', 100, clock_now(), clock_now(), clock_now())`
        yield* chargeAtGateway(id, 100)
        yield* sql`UPDATE orders SET version = 1 WHERE id = ${declined}::uuid`
      }),
    by: "person"
  },
  {
    of: "the row of a paid order says cancelled",
    rule: "captured-order-cancelled",
    also: ["status-unannounced", "billing-entry-unfounded", "reservation-left-over"],
    broken: ({ paid }, sql) => sql`UPDATE orders SET status = 'cancelled' WHERE id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a paid order's payment says declined",
    rule: "gateway-capture-unrecorded",
    also: ["paid-without-capture"],
    broken: ({ paid }, sql) =>
      sql`UPDATE payments SET status = 'declined', captured_minor = 0, decline_reason = 'card_declined' WHERE id = ${paid.paymentId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a paid order's payment says refunded",
    rule: "refunded-order-paid",
    also: ["gateway-refund-missing"],
    broken: ({ paid }, sql) =>
      sql`
        UPDATE payments SET status = 'refunded', refunded_minor = captured_minor, refund_begun_at = clock_now() WHERE id = ${paid.paymentId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a payment names another order, which is pending",
    rule: "captured-order-pending",
    also: ["paid-without-capture", "event-differs", "billing-entry-differs"],
    broken: ({ paid, pending }, sql) =>
      sql`UPDATE payments SET order_id = ${pending}::uuid WHERE id = ${paid.paymentId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a payment names another order, which is cancelled",
    rule: "captured-order-cancelled",
    also: ["paid-without-capture", "event-differs", "billing-entry-differs"],
    broken: ({ cancelled, paid }, sql) =>
      sql`UPDATE payments SET order_id = ${cancelled}::uuid WHERE id = ${paid.paymentId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a declined payment says captured",
    rule: "captured-order-pending",
    also: ["gateway-capture-missing", "event-differs"],
    broken: ({ declined }, sql) =>
      sql`
        UPDATE payments SET status = 'captured', captured_minor = amount_minor, decline_reason = NULL WHERE order_id = ${declined}::uuid`,
    by: "person"
  },
  {
    of: "the row of a payment that the gateway does not know says captured, and its order is cancelled",
    rule: "captured-order-cancelled",
    also: ["gateway-capture-missing"],
    broken: ({ cancelled }, sql) =>
      sql`
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
        VALUES (${Subscribed.newId()}::uuid, ${cancelled}::uuid, 'captured', 'pm_ok', 100, 'EUR', 100, clock_now(), clock_now(), clock_now())`,
    by: "person"
  },
  {
    of: "a paid order's payment says refunding, and nobody has asked for a refund",
    rule: "recovery-missing",
    broken: ({ paid }, sql) =>
      sql`UPDATE payments SET status = 'refunding', refund_begun_at = clock_now() WHERE id = ${paid.paymentId}::uuid`,
    by: "person",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT status, EXISTS (SELECT FROM outbox_tasks WHERE idempotency_key = ${`${paid.paymentId}-refund`}) AS "isAsked"
          FROM payments WHERE id = ${paid.paymentId}::uuid`
        assert.deepStrictEqual(rows, [{ status: "refunding", isAsked: false }])
        // As the refusal says.
        yield* sql`UPDATE payments SET status = 'captured', refund_begun_at = NULL WHERE id = ${paid.paymentId}::uuid`
        assert.deepStrictEqual(brokenIn(yield* look), {})
      })
  },
  {
    of: "the row of a refunded order says paid",
    rule: "refunded-order-paid",
    also: ["status-unannounced", "billing-entry-unfounded", "reservation-unfounded"],
    broken: ({ refunded }, sql) => sql`UPDATE orders SET status = 'paid' WHERE id = ${refunded.orderId}::uuid`,
    by: "person"
  },
  {
    of: "the row of an archived event is gone, and its entry, too",
    rule: "revenue-differs",
    also: ["billing-entry-missing", "event-unarchived"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  }
]
