/** The row of an order says what could not come next, and the event that would contradict it is lost, forgotten, or told already. */
import { Effect } from "effect"
import { cancel, pay, place, recover } from "../../World.ts"
import { chargeAtGateway, deliver, refundAtGateway } from "../Books.ts"
import type { Break, Refusal } from "./Case.ts"
import { asked, cancelledInFlight, capture, declineLate, inFlight } from "./Steps.ts"

export const wrongStatusCases: ReadonlyArray<Refusal> = [
  {
    of: "OrderPlaced is lost before it is published, and the order's row says cancelled",
    rule: "event-missing",
    why: /version 1 of an order is OrderPlaced/,
    broken: (_, sql) =>
      Effect.gen(function* () {
        const orderId = yield* place
        yield* sql`DELETE FROM outbox_events`
        yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${orderId}::uuid`
      })
  },
  {
    of: "PaymentDeclined is lost before it is published, and the order's row says cancelled",
    rule: "event-missing",
    why: /its event may be the lost one: if it was declined first, set the order's status to pending/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* pay(pending, "declined", "pm_declined")
        yield* sql`DELETE FROM outbox_events`
        yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${pending}::uuid`
      })
  },
  {
    of: "OrderCancelled is lost before it is published, a late capture went back, and the order's row says refunded",
    rule: "event-missing",
    why: /no other book tells that the order was paid/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* cancel(pending)
        const id = yield* capture(pending, "refunded")
        yield* refundAtGateway(id, `${id}:refund`, 100)
        yield* sql`DELETE FROM outbox_events`
        yield* sql`UPDATE orders SET status = 'refunded' WHERE id = ${pending}::uuid`
      })
  },
  {
    of: "what was told of a cancelled order without stock is forgotten, a late capture went back, and the rows say paid and captured",
    rule: "gateway-refund-unrecorded",
    why: /no other book tells that the order was paid/,
    broken: ({ cancelled }, sql) =>
      Effect.gen(function* () {
        const id = yield* capture(cancelled, "captured")
        yield* refundAtGateway(id, `${id}:refund`, 100)
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${cancelled}`
        yield* sql`UPDATE inventory_reservations SET status = 'out_of_stock', counted = true WHERE order_id = ${cancelled}::uuid`
        yield* sql`UPDATE orders SET status = 'paid' WHERE id = ${cancelled}::uuid`
      })
  },
  ...(["charging", "manual"] as const).map((status) => ({
    of: `OrderCancelled is queued, the order's row says pending, and its payment, which the gateway has captured, ${status}`,
    rule: status === "manual" ? "gateway-capture-unrecorded" : "recovery-missing",
    why: /the order was cancelled or refunded, and its row says pending/,
    broken: (({ pending }, sql) =>
      Effect.gen(function* () {
        yield* cancel(pending)
        yield* capture(pending, status)
        yield* sql`UPDATE orders SET status = 'pending' WHERE id = ${pending}::uuid`
      })) satisfies Break
  })),
  {
    of: "the client was told that the payment is declined, and its row says charging",
    rule: "recovery-missing",
    why: /its request was answered with 402/,
    broken: ({ declined }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${declined}`
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'payment.recover'`
        yield* sql`
          UPDATE payments SET status = 'charging', decline_reason = NULL, leased_until = clock_now() - interval '1 day'
          WHERE order_id = ${declined}::uuid`
      })
  },
  {
    of: "PaymentDeclined is queued, and the payment's row says charging",
    rule: "recovery-missing",
    why: /PaymentDeclined was told of this payment before/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* pay(pending, "declined", "pm_declined")
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'payment.recover'`
        yield* sql`
          UPDATE payments SET status = 'charging', decline_reason = NULL, leased_until = clock_now() - interval '1 day'
          WHERE order_id = ${pending}::uuid`
      })
  },
  {
    of: "only the row of a payment says that it was declined, and the gateway has captured it",
    rule: "gateway-capture-unrecorded",
    why: /only its own row says that the payment was declined/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = yield* capture(pending, "charging")
        yield* asked(pending, id)
        yield* sql`UPDATE payments SET status = 'declined', decline_reason = 'no funds', updated_at = updated_at + interval '1 minute' WHERE id = ${id}::uuid`
      })
  },
  {
    of: "only the row of a payment says that it was declined, the gateway has captured it, and its key is lost",
    rule: "gateway-capture-unrecorded",
    why: /only its own row says that the payment was declined/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const id = yield* capture(pending, "charging")
        yield* sql`UPDATE payments SET status = 'declined', decline_reason = 'no funds', updated_at = updated_at + interval '1 minute' WHERE id = ${id}::uuid`
      })
  },
  {
    of: "the key of a payment is lost, and its row was moved to a cancelled order, where it waits for a person",
    rule: "gateway-capture-unrecorded",
    why: /no request is known that asked for the payment/,
    broken: ({ cancelled }) => capture(cancelled, "manual")
  },
  {
    of: "the payment of a cancelled order was moved to a paid one, whose payment says manual",
    rule: "refunded-order-paid",
    why: /the order was paid by another payment/,
    broken: ({ cancelled, paid: { orderId, paymentId } }, sql) =>
      Effect.gen(function* () {
        const id = yield* capture(cancelled, "refunded")
        yield* refundAtGateway(id, `${id}:refund`, 100)
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
        yield* sql`UPDATE payments SET order_id = ${orderId}::uuid WHERE id = ${id}::uuid`
        yield* sql`UPDATE payments SET status = 'manual', captured_minor = 0, captured_at = NULL WHERE id = ${paymentId}::uuid`
      })
  },
  {
    of: "PaymentDeclined is queued, the gateway captured it late, and the payment's row says captured",
    rule: "captured-order-pending",
    why: /PaymentDeclined was told of this payment before/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        const { paymentId } = yield* pay(pending, "declined", "pm_declined")
        yield* chargeAtGateway(paymentId, 100)
        yield* sql`
          UPDATE payments SET status = 'captured', captured_minor = 100, captured_at = clock_now(), decline_reason = NULL WHERE id = ${paymentId}::uuid`
      })
  },
  ...(["pending", "cancelled"] as const).map((to) => ({
    of: `no book tells any more of a captured payment but its row, which was moved to an order that is ${to}`,
    rule: `captured-order-${to}`,
    why: /no request is known that asked for the payment/,
    broken: ((books) => capture(books[to], "captured")) satisfies Break
  })),
  {
    of: "what was told of a cancelled order is forgotten, its payment was declined later, its row says pending, and its reservation is lost",
    rule: "reservation-missing",
    why: /what was told of it is forgotten/,
    broken: (_, sql) =>
      Effect.gen(function* () {
        const { orderId, paymentId } = yield* cancelledInFlight("error")
        yield* declineLate(paymentId, 60)
        yield* deliver
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
        yield* sql`UPDATE orders SET status = 'pending' WHERE id = ${orderId}::uuid`
        yield* sql`DELETE FROM inventory_reservations WHERE order_id = ${orderId}::uuid`
      })
  },
  {
    of: "the receipt says that it tells of a refund, and has the key of OrderPlaced",
    rule: "mail-missing",
    why: /under another key/,
    broken: ({ paid: { orderId } }, sql) =>
      sql`
        UPDATE outbox_tasks SET payload = jsonb_set(payload::jsonb, '{kind}', '"refund-notice"')::json,
          idempotency_key = (SELECT event_id::text FROM event_log WHERE aggregate_id = ${orderId} AND event_type = 'OrderPlaced')
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${orderId}%`}`
  },
  {
    of: "OrderCancelled is lost before it is published, and the money of a late capture is on its way back",
    rule: "event-missing",
    why: /on its way back: repair once more/,
    broken: (_, sql) =>
      Effect.gen(function* () {
        const { paymentId } = yield* cancelledInFlight("error-after")
        yield* recover(paymentId)
        yield* sql`DELETE FROM outbox_events`
      })
  },
  {
    of: "the gateway has captured a payment of a pending order, whose row says cancelled, and its reservation released",
    rule: "gateway-capture-unrecorded",
    why: /only its own row says that the order is cancelled/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* asked(pending, yield* capture(pending, "manual"))
        yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${pending}::uuid`
        yield* sql`UPDATE inventory_reservations SET status = 'released' WHERE order_id = ${pending}::uuid`
      })
  },
  {
    of: "a payment is in flight, its row says declined, and the version of its order leaves room for that",
    rule: "gateway-capture-unrecorded",
    why: /only its own row says that the payment was declined/,
    broken: (_, sql) =>
      Effect.gen(function* () {
        const { orderId, paymentId } = yield* inFlight("error-after")
        yield* sql`UPDATE payments SET status = 'declined', decline_reason = 'no funds' WHERE id = ${paymentId}::uuid`
        yield* sql`UPDATE orders SET version = 2 WHERE id = ${orderId}::uuid`
      })
  },
  ...[1, 2].map((version) => ({
    of: `the gateway has never heard of a payment in flight, whose row says refunding, and its order's row paid with version ${version}`,
    rule: version === 1 ? "status-unannounced" : "event-missing",
    why: /it waits for gateway-capture-missing/,
    broken: ((_, sql) =>
      Effect.gen(function* () {
        const { orderId, paymentId } = yield* inFlight("error")
        yield* sql`
          UPDATE payments SET status = 'refunding', captured_minor = amount_minor, captured_at = clock_now(), refund_begun_at = clock_now()
          WHERE id = ${paymentId}::uuid`
        yield* sql`UPDATE orders SET status = 'paid', version = ${version} WHERE id = ${orderId}::uuid`
      })) satisfies Break
  })),
  {
    of: "the gateway has captured a payment that waits for a person, and its order's row says cancelled, with a version more",
    rule: "event-missing",
    why: /a payment of the order has no outcome yet/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* asked(pending, yield* capture(pending, "manual"))
        yield* sql`UPDATE orders SET status = 'cancelled', version = 2 WHERE id = ${pending}::uuid`
      })
  },
  {
    of: "the recovery of a payment in flight is lost, and the row of its pending order has a version too many",
    rule: "recovery-missing",
    why: /its event of version 2 is missing/,
    broken: (_, sql) =>
      Effect.gen(function* () {
        const { orderId, paymentId } = yield* inFlight("error-after")
        yield* sql`DELETE FROM outbox_tasks WHERE idempotency_key = ${paymentId}`
        yield* sql`UPDATE orders SET version = 2 WHERE id = ${orderId}::uuid`
      })
  },
  {
    of: "the row of a cancelled order has a version too few, and the archive has lost OrderCancelled",
    rule: "status-unannounced",
    why: /consumers have had more of it than its row says: set its version to 2/,
    broken: ({ cancelled }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE orders SET version = 1 WHERE id = ${cancelled}::uuid`
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${cancelled} AND aggregate_version = 2`
      })
  },
  ...[
    ["subject", "Receipt"],
    ["kind", "refund-notice"]
  ].map(([field, text]) => ({
    of: `the ${field} of a receipt says something else, and its key is lost`,
    rule: "mail-missing",
    why: /under another key/,
    broken: (({ paid: { orderId } }, sql) =>
      sql`
        UPDATE outbox_tasks SET idempotency_key = NULL, payload = jsonb_set(payload::jsonb, ARRAY[${field}], to_jsonb(${text}::text))::json
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${orderId}%`}`) satisfies Break
  }))
]
