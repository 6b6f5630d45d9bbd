/** Books have lost, or changed, what consumers were told of an order. */
import { Effect } from "effect"
import { pay } from "../../World.ts"
import * as Subscribed from "../../../support/Subscribed.ts"
import type { Break, Refusal } from "./Case.ts"
import { andTheEntry, forget, retype, undelivered } from "./Steps.ts"

export const toldCases: ReadonlyArray<Refusal> = [
  ...(["cancelled", "pending"] as const).map((status) => ({
    of: `what was told of a paid order is forgotten, its ledger entry is lost, and its row says ${status}`,
    rule: `captured-order-${status}`,
    why: status === "pending" ? /no request is known that asked for the payment/ : /what was told of it is forgotten/,
    broken: ((books, sql) =>
      Effect.gen(function* () {
        yield* forget(books, sql)
        yield* sql`UPDATE orders SET status = ${status} WHERE id = ${books.paid.orderId}::uuid`
      })) satisfies Break
  })),
  {
    of: "what was told of a paid order is forgotten, its ledger entry is lost, and its row of version 1 says cancelled",
    rule: "captured-order-cancelled",
    why: /what was told of it is forgotten/,
    broken: (books, sql) =>
      Effect.gen(function* () {
        yield* forget(books, sql)
        yield* sql`UPDATE orders SET status = 'cancelled', version = 1 WHERE id = ${books.paid.orderId}::uuid`
      })
  },
  {
    of: "the type of an archived sale says declined, and its entry is lost",
    rule: "status-unannounced",
    why: /event-differs/,
    broken: retype("paid", "PaymentDeclined")
  },
  {
    of: "the type of an archived refund says paid, and its entries are lost",
    rule: "status-unannounced",
    why: /event-differs/,
    broken: retype("refunded", "OrderPaid")
  },
  {
    of: "the type of an archived sale says refunded, and its receipt is lost",
    rule: "mail-missing",
    why: /event-differs/,
    broken: ({ paid: { orderId } }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE event_log SET event_type = 'OrderRefunded' WHERE aggregate_id = ${orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${orderId}%`}`
      })
  },
  {
    of: "the type of a placed order's event says cancelled",
    rule: "status-unannounced",
    why: /event-differs/,
    broken: ({ pending }, sql) =>
      sql`UPDATE event_log SET event_type = 'OrderCancelled' WHERE aggregate_id = ${pending}`
  },
  ...(["entry", "receipt"] as const).map((lost) => ({
    of: `the id of an archived sale was changed, and its ${lost} is lost`,
    rule: lost === "entry" ? "billing-entry-missing" : "mail-missing",
    why: /event-differs/,
    broken: (({ paid: { orderId } }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
        if (lost === "receipt") {
          yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${orderId}%`}`
        }
        yield* sql`
          UPDATE event_log SET event_id = ${Subscribed.newId()}::uuid WHERE aggregate_id = ${orderId} AND event_type = 'OrderPaid'`
      })) satisfies Break
  })),
  {
    of: "the sale of a paid order was delivered, archive, marks, cursors and ledger have lost it, and the row says cancelled",
    rule: "captured-order-cancelled",
    why: /the order was paid, and its row says cancelled/,
    broken: (books, sql) =>
      Effect.gen(function* () {
        yield* andTheEntry("paid")(books, sql)
        yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${books.paid.orderId}::uuid`
      })
  },
  ...(["pending", "cancelled", "paid", "refunded"] as const).map((status) => ({
    of: `the last event of a ${status} order was delivered, and archive, marks and cursors have lost it`,
    rule: "event-missing",
    why: /was told of it before, as .* says\. If paid-once archive refill --dry-run finds it, set the consumers' cursors/,
    broken: undelivered(status)
  })),
  ...(["paid", "refunded"] as const).map((status) => ({
    of: `the last event of a ${status} order was delivered, and archive, marks, cursors and ledger have lost it`,
    rule: "event-missing",
    why: /was told of it before, as .* says\. If paid-once archive refill --dry-run finds it, set the consumers' cursors/,
    broken: andTheEntry(status)
  })),
  ...["Bogus", "OrderRefunded", "OrderCancelled"].map((type) => ({
    of: `the type of an archived sale says ${type}`,
    rule: "status-unannounced",
    why: /event-differs/,
    broken: ((books, sql) =>
      sql`UPDATE event_log SET event_type = ${type} WHERE aggregate_id = ${books.paid.orderId} AND event_type = 'OrderPaid'`) satisfies Break
  })),
  {
    of: "the entry of a sale is lost, and its order's row says pending",
    rule: "captured-order-pending",
    why: /OrderPaid was told of it before: its row is what is wrong/,
    broken: ({ paid: { orderId } }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
        yield* sql`UPDATE orders SET status = 'pending' WHERE id = ${orderId}::uuid`
      })
  },
  {
    of: "the entry of a sale is lost, its order's row says pending, and its payment's row manual",
    rule: "gateway-capture-unrecorded",
    why: /OrderPaid was told of this payment before/,
    broken: ({ paid: { orderId, paymentId } }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
        yield* sql`UPDATE orders SET status = 'pending' WHERE id = ${orderId}::uuid`
        yield* sql`UPDATE payments SET status = 'manual', captured_minor = 0, captured_at = NULL WHERE id = ${paymentId}::uuid`
      })
  },
  ...[
    ["manual", "status = 'manual', captured_minor = 0, captured_at = NULL"],
    ["charging", "status = 'charging', captured_minor = 0, captured_at = NULL"],
    ["declined", "status = 'declined', captured_minor = 0, captured_at = NULL, decline_reason = 'no funds'"],
    ["refunding", "status = 'refunding', refund_begun_at = clock_now()"],
    [
      "refunding after it was declined",
      "status = 'refunding', refund_begun_at = clock_now(), decline_reason = 'no funds'"
    ]
  ].map(([status = "", set = ""]) => ({
    of: `only the mail tells of a sale, the order's row says cancelled, and the payment's ${status}`,
    rule: "event-missing",
    why: /OrderPaid was told of it before|it waits for/,
    broken: ((books, sql) =>
      Effect.gen(function* () {
        yield* andTheEntry("paid")(books, sql)
        yield* sql`DELETE FROM idempotency_keys`
        yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${books.paid.orderId}::uuid`
        yield* sql`UPDATE payments SET ${sql.literal(set)} WHERE id = ${books.paid.paymentId}::uuid`
      })) satisfies Break
  })),
  {
    of: "only the mail tells of a sale, and the order's row is the one before it",
    rule: "captured-order-pending",
    why: /OrderPaid was told of it before/,
    broken: (books, sql) =>
      Effect.gen(function* () {
        yield* andTheEntry("paid")(books, sql)
        yield* sql`UPDATE orders SET status = 'pending', version = 1 WHERE id = ${books.paid.orderId}::uuid`
      })
  },
  {
    of: "only the mail tells of a sale, and the order's row has a version too few",
    rule: "status-unannounced",
    why: /OrderPaid was told of it before/,
    broken: (books, sql) =>
      Effect.gen(function* () {
        yield* andTheEntry("paid")(books, sql)
        yield* sql`UPDATE orders SET version = 1 WHERE id = ${books.paid.orderId}::uuid`
      })
  },
  {
    of: "archive and order say cancelled of a sale, and its entry is lost",
    rule: "captured-order-cancelled",
    why: /the order was paid, and its row says cancelled/,
    broken: ({ cancelled, paid: { orderId } }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          UPDATE event_log SET event_type = 'OrderCancelled', data = (SELECT data FROM event_log WHERE aggregate_id = ${cancelled} AND aggregate_version = 2)
          WHERE aggregate_id = ${orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
        yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${orderId}::uuid`
      })
  },
  {
    of: "of a refund archive, ledger and mail are lost, the order's row is the one before it, and the payment's says captured",
    rule: "gateway-refund-unrecorded",
    why: /its events go on to version 3, and its row ends at 2/,
    broken: ({ refunded: { orderId, paymentId } }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid AND debit_account = 'refunds'`
        yield* sql`UPDATE inventory_reservations SET status = 'reserved' WHERE order_id = ${orderId}::uuid`
        yield* sql`UPDATE orders SET status = 'paid', version = 2 WHERE id = ${orderId}::uuid`
        yield* sql`UPDATE payments SET status = 'captured', refunded_minor = 0, refund_begun_at = NULL WHERE id = ${paymentId}::uuid`
      })
  },
  {
    of: "the version of a paid order's row is one too high",
    rule: "event-missing",
    why: /OrderPaid was told of it before, with version 2: its row's version is wrong, set it to 2/,
    broken: ({ paid: { orderId } }, sql) => sql`UPDATE orders SET version = 3 WHERE id = ${orderId}::uuid`
  },
  {
    of: "the sale of an order is queued, and its row is the one before it",
    rule: "captured-order-pending",
    why: /its events go on to version 2, and its row ends at 1/,
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* pay(pending, pending)
        yield* sql`UPDATE orders SET status = 'pending', version = 1 WHERE id = ${pending}::uuid`
      })
  },
  ...["'another'", "NULL"].map((key) => ({
    of: `the key of a receipt's task is ${key}`,
    rule: "mail-missing",
    why: /under another key: set its idempotency_key/,
    broken: (({ paid: { orderId } }, sql) =>
      sql`
        UPDATE outbox_tasks SET idempotency_key = ${sql.literal(key)}
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${orderId}%`}`) satisfies Break
  })),
  {
    of: "the entry of a sale was moved to another order",
    rule: "billing-entry-missing",
    why: /the ledger has booked the event for another order/,
    broken: ({ cancelled, paid: { orderId } }, sql) =>
      sql`UPDATE billing_ledger SET order_id = ${cancelled}::uuid WHERE order_id = ${orderId}::uuid`
  },
  {
    of: "the archive has lost a sale, and analytics its mark at it",
    rule: "revenue-differs",
    why: /it waits for event-unarchived/,
    broken: ({ paid: { orderId } }, sql) =>
      sql`
        WITH lost AS (DELETE FROM event_log WHERE aggregate_id = ${orderId} AND event_type = 'OrderPaid' RETURNING event_id)
        DELETE FROM processed_events AS mark USING lost WHERE mark.event_id = lost.event_id AND mark.consumer_name = 'analytics'`
  }
]
