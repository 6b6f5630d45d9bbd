/** Two damages at once, each of which hides the other one: what is right stays right, and a person hears of it. */
import { assert } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Subscribed from "../../support/Subscribed.ts"
import { cancel, place } from "../World.ts"
import { type AgreeingBooks, agreeing, deliver, type layer, paid, repair, repairs, test } from "./Books.ts"

type Step<A> = (
  books: AgreeingBooks,
  sql: SqlClient.SqlClient
) => Effect.Effect<A, unknown, Layer.Success<typeof layer>>

/** What the customers and the shop have. No repair may change it. */
const facts = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) =>
    sql`
    SELECT (SELECT json_agg(json_build_array(id, status) ORDER BY id) FROM payments) AS payments,
           (SELECT count(*)::int4 FROM outbox_events) AS queued,
           (SELECT count(*)::int4 FROM outbox_tasks) AS tasks,
           (SELECT json_agg(json_build_array(day, amount_minor) ORDER BY day) FROM revenue_daily) AS revenue,
           (SELECT count(*)::int4 FROM billing_ledger) AS entries,
           (SELECT json_agg(json_build_array(sku, available) ORDER BY sku) FROM inventory_stock) AS stock,
           (SELECT json_agg(json_build_array(order_id, sku, status) ORDER BY order_id, sku) FROM inventory_reservations) AS reservations`
)

/** Retention has dropped what was published of the paid order, and its ledger entry is lost. */
const forget: Step<unknown> = ({ paid: { orderId } }, sql) =>
  Effect.gen(function* () {
    yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
    yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
  })

/** The type of the order's last archived event is changed, and its entries are lost. */
const retype =
  (from: "paid" | "refunded", to: string): Step<unknown> =>
  (books, sql) =>
    Effect.gen(function* () {
      const { orderId } = books[from]
      yield* sql`
        UPDATE event_log AS e SET event_type = ${to} WHERE aggregate_id = ${orderId}
          AND aggregate_version = (SELECT version FROM orders WHERE id = ${orderId}::uuid)`
      yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
    })

const cases: ReadonlyArray<{
  readonly of: string
  readonly broken: Step<unknown>
  readonly rule: string
  readonly why: RegExp
}> = [
  ...(["cancelled", "pending"] as const).map((status) => ({
    of: `what was told of a paid order is forgotten, its ledger entry is lost, and its row says ${status}`,
    rule: `captured-order-${status}`,
    why: /what was told of it is forgotten/,
    broken: ((books, sql) =>
      Effect.gen(function* () {
        yield* forget(books, sql)
        yield* sql`UPDATE orders SET status = ${status} WHERE id = ${books.paid.orderId}::uuid`
      })) satisfies Step<unknown>
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
      })) satisfies Step<unknown>
  })),
  {
    of: "the entry of a sale was moved to another order",
    rule: "billing-entry-missing",
    why: /the ledger has booked the event for another order/,
    broken: ({ cancelled, paid: { orderId } }, sql) =>
      sql`UPDATE billing_ledger SET order_id = ${cancelled}::uuid WHERE order_id = ${orderId}::uuid`
  }
]

for (const { broken, of, rule, why } of cases) {
  test(
    `${of}: nothing moves, and a person hears of it`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const books = yield* agreeing
      yield* broken(books, sql)
      const before = yield* facts
      const { items } = yield* repair
      const one = items.find((item) => item.rule === rule)
      assert.strictEqual(one?.repair?.outcome, "manual")
      assert.match(one?.repair?.why ?? "", why)
      assert.deepStrictEqual(yield* facts, before)
      assert.deepStrictEqual(yield* repairs, [])
    })
  )
}

test(
  "a reservation of counted goods was deleted: its goods are not taken again",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO inventory_stock (sku, available) VALUES ('book', 100)`
    const { orderId } = yield* paid
    yield* deliver
    yield* sql`DELETE FROM inventory_reservations WHERE order_id = ${orderId}::uuid`
    const before = yield* facts
    assert.deepInclude(before[0], { stock: [["book", 99]] })
    const one = (yield* repair).items.find(({ rule }) => rule === "reservation-missing")
    assert.match(one?.repair?.why ?? "", /count the goods/)
    assert.deepStrictEqual(yield* facts, before)
  })
)

test(
  "the reservation of a cancelled order says reserved again: its counted goods are not given back twice",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO inventory_stock (sku, available) VALUES ('book', 100)`
    const orderId = yield* place
    yield* deliver
    yield* cancel(orderId)
    yield* deliver
    yield* sql`UPDATE inventory_reservations SET status = 'reserved' WHERE order_id = ${orderId}::uuid`
    const before = yield* facts
    assert.deepInclude(before[0], { stock: [["book", 100]] })
    const one = (yield* repair).items.find(({ rule }) => rule === "reservation-left-over")
    assert.match(one?.repair?.why ?? "", /count the goods/)
    assert.deepStrictEqual(yield* facts, before)
  })
)

test(
  "the row of a payment has an id that no use case reads: its repair says so, and the others go on",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid: other, pending } = yield* agreeing
    yield* sql`
      INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
      SELECT gen_random_uuid(), id, 'charging', 'pm_ok', total_amount_minor, currency, clock_now() - interval '1 day', clock_now(), clock_now()
      FROM orders WHERE id = ${pending}::uuid`
    yield* sql`DELETE FROM billing_ledger WHERE order_id = ${other.orderId}::uuid`
    const { items } = yield* repair
    const outcomeOf = (rule: string) => items.find((one) => one.rule === rule)?.repair
    assert.deepStrictEqual(outcomeOf("billing-entry-missing"), { outcome: "repaired", why: null })
    assert.strictEqual(outcomeOf("recovery-missing")?.outcome, "manual")
    assert.match(outcomeOf("recovery-missing")?.why ?? "", /^its rows can't be read, and nothing was changed/)
  })
)
