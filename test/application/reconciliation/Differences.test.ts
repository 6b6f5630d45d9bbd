/** Books are made to differ by hand, in a way for each rule. Each difference is found, named and repaired, or left to a person. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Subscribed from "../../support/Subscribed.ts"
import {
  agreeing,
  type AgreeingBooks,
  brokenIn,
  chargeAtGateway,
  deliver,
  layer,
  look,
  refundAtGateway,
  repair,
  repairs,
  test
} from "./Books.ts"

type Break = (
  books: AgreeingBooks,
  sql: SqlClient.SqlClient
) => Effect.Effect<unknown, unknown, Layer.Success<typeof layer>>

interface Case {
  /** What was done by hand. */
  readonly of: string
  readonly rule: string
  /** Other rules that it breaks, too. */
  readonly also?: ReadonlyArray<string>
  readonly broken: Break
  /** Who repairs it. `person`: it stays, and says so. */
  readonly by: "use case" | "person"
  /** After the repair, once what it began has ended. */
  readonly afterwards?: Break
}

const cases: ReadonlyArray<Case> = [
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
          found: "1.00 EUR captured, and the ledger books it for this order: the payment's row is lost"
        })
      })
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
    of: "a payment is captured, and its order pending",
    rule: "captured-order-pending",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = Subscribed.newId()
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${pending}::uuid, 'captured', 'pm_ok', 100, 'EUR', 100, clock_now(), clock_now(), clock_now())`
        yield* chargeAtGateway(id, 100)
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
    of: "a payment is charging, and its recovery was deleted",
    rule: "recovery-missing",
    broken: ({ pending }, sql) =>
      sql`
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
        VALUES (${Subscribed.newId()}::uuid, ${pending}::uuid, 'charging', 'pm_ok', 100, 'EUR', clock_now(), clock_now(), clock_now())`,
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
        yield* sql`
          INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
          VALUES (${id}::uuid, ${pending}::uuid, 'charging', 'pm_ok', 100, 'EUR', clock_now(), clock_now(), clock_now())`
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
    of: "an event was deleted from the queue",
    rule: "event-missing",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE orders SET status = 'cancelled', version = 2, updated_at = clock_now() WHERE id = ${pending}::uuid`
      }),
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const rows =
          yield* sql`SELECT event_type AS type, aggregate_version AS version FROM event_log WHERE aggregate_id = ${pending} ORDER BY 2`
        assert.deepStrictEqual(rows, [
          { type: "OrderPlaced", version: 1 },
          { type: "OrderCancelled", version: 2 }
        ])
      })
  },
  {
    of: "an event in the middle was deleted from the queue",
    rule: "event-missing",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE orders SET status = 'cancelled', version = 3, updated_at = clock_now() WHERE id = ${pending}::uuid`
        yield* sql`
          INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                     occurred_at, trace_id, span_id, record_bytes, data)
          SELECT 1, ${Subscribed.newId()}::uuid, topic, 'OrderCancelled', 1, aggregate_type, aggregate_id, 3, clock_now(), trace_id, span_id, 100, '{"lines":[]}'
          FROM event_log WHERE aggregate_id = ${pending} AND aggregate_version = 1`
      }),
    by: "person"
  },
  {
    of: "an order is cancelled by hand, without an event",
    rule: "status-unannounced",
    also: ["reservation-left-over"],
    broken: ({ pending }, sql) =>
      sql`UPDATE orders SET status = 'cancelled', updated_at = clock_now() WHERE id = ${pending}::uuid`,
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`SELECT version FROM orders WHERE id = ${pending}::uuid`
        assert.deepStrictEqual(rows, [{ version: 2 }])
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
    by: "use case",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT status, EXISTS (SELECT FROM outbox_tasks WHERE idempotency_key = ${`${paid.paymentId}-refund`}) AS "isAsked"
          FROM payments WHERE id = ${paid.paymentId}::uuid`
        assert.deepStrictEqual(rows, [{ status: "manual", isAsked: false }])
      })
  },
  {
    of: "a refunded order's payment says captured",
    rule: "gateway-refund-unrecorded",
    also: ["refunded-without-refund"],
    broken: ({ refunded }, sql) =>
      sql`
        UPDATE payments SET status = 'captured', refunded_minor = 0, refund_begun_at = NULL WHERE id = ${refunded.paymentId}::uuid`,
    by: "use case"
  },
  {
    of: "the row of a refunded order says paid",
    rule: "refunded-order-paid",
    also: ["status-unannounced", "billing-entry-unfounded", "reservation-unfounded"],
    broken: ({ refunded }, sql) => sql`UPDATE orders SET status = 'paid' WHERE id = ${refunded.orderId}::uuid`,
    by: "person"
  },
  {
    of: "the row of a paid order has a version too many",
    rule: "event-missing",
    broken: ({ paid }, sql) =>
      sql`UPDATE orders SET version = version + 1, updated_at = clock_now() WHERE id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an event was published of an order that is gone",
    rule: "event-without-change",
    broken: (_, sql) =>
      sql`
        INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
                               span_id, data, broker_partition, broker_offset, published_at)
        SELECT ${Subscribed.newId()}::uuid, topic, event_type, 1, 'Order', gen_random_uuid()::text, 1, occurred_at, trace_id, span_id, data, 0, 0, published_at
        FROM event_log WHERE event_type = 'OrderPlaced' LIMIT 1`,
    by: "person"
  },
  {
    of: "the row of an archived event has another amount, and its entry is gone from the ledger",
    rule: "event-differs",
    also: ["billing-entry-missing", "revenue-differs"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          UPDATE event_log SET data = jsonb_set(data::jsonb, '{amount,amountMinor}', '90')::json
          WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "the row of an archived event names another customer, and its mail's task is gone",
    rule: "event-differs",
    also: ["mail-missing"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          UPDATE event_log SET data = jsonb_set(data::jsonb, '{customerId}', '"eve"')::json
          WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
      }),
    by: "person"
  },
  {
    of: "the row of an archived event names no payment of its order",
    rule: "event-differs",
    broken: ({ paid, refunded }, sql) =>
      sql`
        UPDATE event_log SET data = jsonb_set(data::jsonb, '{paymentId}', to_jsonb(${refunded.paymentId}::text))::json
        WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the row of an archived event tells of other goods",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE event_log SET data = jsonb_set(data::jsonb, '{lines,0,sku}', '"lamp"')::json
        WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPlaced'`,
    by: "person"
  },
  {
    of: "the row of a line names another sku, and so does its reservation",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE order_lines SET sku = 'lamp' WHERE order_id = ${paid.orderId}::uuid`
        yield* sql`UPDATE inventory_reservations SET sku = 'lamp' WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "the row of an archived event has the time of another day",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE event_log SET occurred_at = occurred_at - interval '3 days' WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the row of an archived event is gone, and its entry, too",
    rule: "revenue-differs",
    also: ["billing-entry-missing"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "an entry was deleted from the ledger",
    rule: "billing-entry-missing",
    broken: ({ paid }, sql) => sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`,
    by: "use case"
  },
  {
    of: "an entry of a refund was deleted from the ledger, and the archive has dropped its event",
    rule: "billing-entry-missing",
    broken: ({ refunded }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${refunded.orderId}::uuid AND debit_account = 'refunds'`
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${refunded.orderId}`
        yield* sql`UPDATE revenue_daily SET amount_minor = amount_minor + 100`
      }),
    by: "person"
  },
  {
    of: "the amount of an entry was changed",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) => sql`UPDATE billing_ledger SET amount_minor = 90 WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry credits another account",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) =>
      sql`UPDATE billing_ledger SET credit_account = 'refunds' WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry has the time of another day",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) =>
      sql`UPDATE billing_ledger SET occurred_at = occurred_at - interval '3 days' WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry names an event that is nobody's",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) =>
      // As near as can be: its time stays.
      sql`
        UPDATE billing_ledger SET event_id = overlay(event_id::text placing '000000000000' from 25)::uuid
        WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "a line's price was changed",
    rule: "lines-differ",
    also: ["event-differs"],
    broken: ({ paid }, sql) =>
      sql`UPDATE order_lines SET unit_amount_minor = unit_amount_minor + 1 WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "all lines of an order are gone, and its reservation",
    rule: "lines-differ",
    also: ["event-differs"],
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM order_lines WHERE order_id = ${pending}::uuid`
        yield* sql`DELETE FROM inventory_reservations WHERE order_id = ${pending}::uuid`
      }),
    by: "person"
  },
  {
    of: "a receipt tells another amount",
    rule: "mail-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE outbox_tasks SET payload = replace(payload::text, ' 1.00 EUR', ' 11.00 EUR')::json
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "person"
  },
  {
    of: "a receipt goes to another customer",
    rule: "mail-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE outbox_tasks SET payload = jsonb_set(payload::jsonb, '{to}', to_jsonb('eve@' || split_part(payload ->> 'to', '@', 2)))::json
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "person"
  },
  ...["text", "subject"].map((part): Case => ({
    of: `the ${part} of a receipt names another order`,
    rule: "mail-differs",
    broken: ({ paid, pending }, sql) =>
      sql`
          UPDATE outbox_tasks
          SET payload = jsonb_set(payload::jsonb, ARRAY[${part}], to_jsonb(replace(payload ->> ${part}, ${paid.orderId}, ${pending})))::json
          WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "person"
  })),
  {
    of: "the task of a mail that was sent says cancelled",
    rule: "mail-sent-cancelled",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          INSERT INTO mail_deliveries (task_id, kind, recipient, subject, status, created_at, updated_at, sent_at)
          SELECT task_id, 'receipt', 'a@b.example', 's', 'sent', clock_now(), clock_now(), clock_now() FROM outbox_tasks
          WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        yield* sql`
          UPDATE outbox_tasks SET state = 'cancelled', finished_at = clock_now()
          WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
      }),
    by: "use case",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT state FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        assert.deepStrictEqual(rows, [{ state: "pending" }])
      })
  },
  {
    of: "a sale was booked twice, and no second receipt is asked for",
    rule: "billing-entry-twice",
    also: ["billing-entry-differs"],
    broken: ({ paid }, sql) =>
      sql`
        INSERT INTO billing_ledger SELECT ${Subscribed.newId()}::uuid, order_id, payment_id, debit_account, credit_account, amount_minor, currency,
                                          occurred_at, recorded_at FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "a sale of an order that is not paid was booked",
    rule: "billing-entry-unfounded",
    also: ["billing-entry-differs"],
    broken: ({ cancelled, paid }, sql) =>
      sql`
        INSERT INTO billing_ledger SELECT ${Subscribed.newId()}::uuid, ${cancelled}::uuid, payment_id, debit_account, credit_account, amount_minor, currency,
                                          occurred_at, recorded_at FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "a reservation was deleted",
    rule: "reservation-missing",
    broken: ({ paid }, sql) => sql`DELETE FROM inventory_reservations WHERE order_id = ${paid.orderId}::uuid`,
    by: "use case"
  },
  {
    of: "a cancelled order holds goods",
    rule: "reservation-left-over",
    broken: ({ cancelled }, sql) =>
      sql`UPDATE inventory_reservations SET status = 'reserved' WHERE order_id = ${cancelled}::uuid`,
    by: "use case"
  },
  {
    of: "a reservation has another quantity than the order",
    rule: "reservation-unfounded",
    broken: ({ paid }, sql) =>
      sql`UPDATE inventory_reservations SET quantity = 7 WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "goods are held for an order that is gone",
    rule: "reservation-unfounded",
    broken: (_, sql) =>
      sql`
        INSERT INTO inventory_reservations SELECT gen_random_uuid(), 'book', 1, 'reserved', false, clock_now(), clock_now()`,
    by: "person"
  },
  {
    of: "the task of a receipt was deleted, and its sale was booked twice",
    rule: "billing-entry-twice",
    also: ["billing-entry-differs", "mail-missing"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        yield* sql`
          INSERT INTO billing_ledger SELECT ${Subscribed.newId()}::uuid, order_id, payment_id, debit_account, credit_account, amount_minor, currency,
                                            occurred_at, recorded_at FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "the task of a receipt was deleted",
    rule: "mail-missing",
    broken: ({ paid }, sql) =>
      sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "use case",
    // The key makes the Message-ID: a customer who has had the receipt gets a copy of it.
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT t.idempotency_key = e.event_id::text AS "isTheEvents" FROM outbox_tasks AS t, event_log AS e
          WHERE e.aggregate_id = ${paid.orderId} AND e.event_type = 'OrderPaid' AND t.payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        assert.deepStrictEqual(rows, [{ isTheEvents: true }])
      })
  },
  {
    of: "a day's revenue was changed",
    rule: "revenue-differs",
    broken: (_, sql) => sql`UPDATE revenue_daily SET amount_minor = amount_minor - 7`,
    by: "use case"
  },
  {
    of: "a day's revenue was deleted",
    rule: "revenue-differs",
    broken: (_, sql) => sql`DELETE FROM revenue_daily`,
    by: "use case"
  }
]

const auditOf = (rule: string) => ({ actor: "ada", reason: "a test", rule })

for (const { afterwards, also = [], broken, by, of, rule } of cases) {
  test(
    `${of}: ${rule}`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const books = yield* agreeing
      assert.deepStrictEqual(brokenIn(yield* look), {})

      yield* broken(books, sql)
      const found = yield* look
      assert.deepStrictEqual(
        brokenIn(found),
        Object.fromEntries(found.rules.filter((one) => [rule, ...also].includes(one.rule)).map((one) => [one.rule, 1]))
      )
      assert.deepStrictEqual(yield* repairs, [])

      const mended = yield* repair
      const one = mended.items.find((item) => item.rule === rule)
      if (by === "person") {
        assert.strictEqual(one?.repair?.outcome, "manual")
        // Events and money tell that a row is wrong: no repair of any rule believes it.
        if (of.startsWith("the row of")) assert.deepStrictEqual(yield* repairs, [])
        assert.include(brokenIn(yield* look), { [rule]: 1 })
        assert.notInclude(
          (yield* repairs).map((entry) => entry.rule),
          rule
        )
        yield* afterwards?.(books, sql) ?? Effect.void
        return
      }
      assert.deepStrictEqual(one?.repair, { outcome: "repaired", why: null })
      const audit = yield* repairs
      assert.deepInclude(audit[0], auditOf(rule))

      // Clean at once, and when all that the repair began is done.
      assert.deepStrictEqual(brokenIn(yield* look), {})
      yield* deliver
      assert.deepStrictEqual(brokenIn(yield* look), {})
      yield* afterwards?.(books, sql) ?? Effect.void

      // A second repair does nothing.
      const second = yield* repair
      assert.strictEqual(second.repaired, 0)
      assert.deepStrictEqual(yield* repairs, audit)
    })
  )
}
