/** Two damages at once, each of which hides the other one: what is right stays right, and a person hears of it. */
import { assert } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { root } from "../../support/TestDatabase.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { cancel, pay, place, recover, refund } from "../World.ts"
import {
  type AgreeingBooks,
  agreeing,
  brokenIn,
  chargeAtGateway,
  deliver,
  type layer,
  look,
  paid,
  repair,
  repairs,
  test
} from "./Books.ts"

type Step<A> = (
  books: AgreeingBooks,
  sql: SqlClient.SqlClient
) => Effect.Effect<A, unknown, Layer.Success<typeof layer>>

/** Runs the statement of docs/reconciliation.md that begins so, with its words in capitals replaced. */
const run = Effect.fnUntraced(function* (begin: string, words: Readonly<Record<string, string>>) {
  const page = readFileSync(Path.join(root, "docs/reconciliation.md"), "utf8")
  const from = page.indexOf(begin)
  assert.isAbove(from, 0, begin)
  const statement = page.slice(from, page.indexOf(";", from))
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(Object.entries(words).reduce((text, [word, value]) => text.replaceAll(word, value), statement))
})

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

/** Retention has dropped what was published of the paid order, its mail's task and its key, and its ledger entry is lost. */
const forget: Step<unknown> = ({ paid: { orderId } }, sql) =>
  Effect.gen(function* () {
    yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
    yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
    yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%${orderId}%`}`
    yield* sql`DELETE FROM idempotency_keys`
  })

/** The row of the paid order's payment becomes that of the pending or the cancelled order, as `set` says. */
const moved =
  (to: "pending" | "cancelled", set: string): Step<unknown> =>
  (books, sql) =>
    sql`UPDATE payments SET order_id = ${books[to]}::uuid, ${sql.literal(set)} WHERE id = ${books.paid.paymentId}::uuid`

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

/** Archive, marks and cursors have lost the order's last event, which was delivered. */
const undeliver = (orderId: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly id: string; readonly version: number }>`
      DELETE FROM event_log AS e USING orders AS o
      WHERE e.aggregate_id = o.id::text AND e.aggregate_version = o.version AND o.id = ${orderId}::uuid
      RETURNING e.event_id::text AS id, o.version`
    const { id, version } = row!
    yield* sql`DELETE FROM processed_events WHERE event_id = ${id}::uuid`
    yield* sql`DELETE FROM consumer_cursors WHERE aggregate_id = ${orderId} AND version <= 1`
    yield* sql`UPDATE consumer_cursors SET version = version - 1 WHERE aggregate_id = ${orderId} AND version > 1`
    return { id, version }
  })

const undelivered =
  (from: "pending" | "cancelled" | "paid" | "refunded"): Step<unknown> =>
  (books) => {
    const one = books[from]
    return undeliver(typeof one === "string" ? one : one.orderId)
  }

/** The ledger's entry of the last movement is lost, too. */
const andTheEntry =
  (from: "paid" | "refunded"): Step<unknown> =>
  (books, sql) =>
    Effect.gen(function* () {
      const { id } = yield* undeliver(books[from].orderId)
      yield* sql`DELETE FROM billing_ledger WHERE event_id = ${id}::uuid`
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
    why:
      status === "cancelled" ? /only its own row says that the order is cancelled/ : /what was told of it is forgotten/,
    broken: ((books, sql) =>
      Effect.gen(function* () {
        yield* forget(books, sql)
        yield* sql`UPDATE orders SET status = ${status} WHERE id = ${books.paid.orderId}::uuid`
      })) satisfies Step<unknown>
  })),
  {
    of: "what was told of a paid order is forgotten, its ledger entry is lost, and its row of version 1 says cancelled",
    rule: "captured-order-cancelled",
    why: /only its own row says that the order is cancelled/,
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
    why: /was told of it before: set the consumers' cursors/,
    broken: undelivered(status)
  })),
  ...(["paid", "refunded"] as const).map((status) => ({
    of: `the last event of a ${status} order was delivered, and archive, marks, cursors and ledger have lost it`,
    rule: "event-missing",
    why: /was told of it before: set the consumers' cursors/,
    broken: andTheEntry(status)
  })),
  ...["Bogus", "OrderRefunded", "OrderCancelled"].map((type) => ({
    of: `the type of an archived sale says ${type}`,
    rule: "status-unannounced",
    why: /event-differs/,
    broken: ((books, sql) =>
      sql`UPDATE event_log SET event_type = ${type} WHERE aggregate_id = ${books.paid.orderId} AND event_type = 'OrderPaid'`) satisfies Step<unknown>
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
        })) satisfies Step<unknown>
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
        })) satisfies Step<unknown>
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
        })) satisfies Step<unknown>
    }
  ]),
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
      })) satisfies Step<unknown>
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
  ...[1, 2].map((version) => ({
    of: `the payment of a paid order was moved to a pending one, whose row says paid, with version ${version}`,
    rule: version === 1 ? "status-unannounced" : "event-missing",
    why: /for another order/,
    broken: (({ paid, pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE payments SET order_id = ${pending}::uuid WHERE id = ${paid.paymentId}::uuid`
        yield* sql`UPDATE orders SET status = 'paid', version = ${version}::int4 WHERE id = ${pending}::uuid`
      })) satisfies Step<unknown>
  })),
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
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${orderId}%`}`) satisfies Step<unknown>
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
  "the sale of a paid order is lost before it is published, and its row says cancelled: no repair gives its money back",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    yield* deliver
    yield* pay(orderId, orderId)
    yield* sql`DELETE FROM outbox_events`
    yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${orderId}::uuid`
    const before = yield* facts
    for (const _ of ["first", "second"]) {
      const { items } = yield* repair
      assert.match(items.find(({ rule }) => rule === "event-missing")?.repair?.why ?? "", /set its status to paid/)
      assert.strictEqual(items.find(({ rule }) => rule === "captured-order-cancelled")?.repair?.outcome, "manual")
      assert.deepStrictEqual(yield* facts, before)
    }
    yield* sql`UPDATE orders SET status = 'paid' WHERE id = ${orderId}::uuid`
    yield* repair
    yield* deliver
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "a payment was declined, the sale of the next one is lost, and the row says cancelled one version before: its money stays",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    yield* pay(orderId, "declined", "pm_declined")
    yield* deliver
    yield* pay(orderId, "again")
    yield* sql`DELETE FROM outbox_events`
    yield* sql`DELETE FROM idempotency_keys`
    yield* sql`UPDATE orders SET status = 'cancelled', version = 2 WHERE id = ${orderId}::uuid`
    const before = yield* facts
    const one = (yield* repair).items.find(({ rule }) => rule === "captured-order-cancelled")
    assert.match(one?.repair?.why ?? "", /only its own row says that the order is cancelled/)
    assert.deepStrictEqual(yield* facts, before)
  })
)

test(
  "a payment is being charged, its recovery is lost, and the order's row says cancelled: no recovery is begun that would refund it",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { pending } = yield* agreeing
    const id = Subscribed.newId()
    yield* sql`
      INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
      VALUES (${id}::uuid, ${pending}::uuid, 'charging', 'pm_ok', 100, 'EUR', clock_now() - interval '1 day', clock_now(), clock_now())`
    yield* chargeAtGateway(id, 100)
    yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${pending}::uuid`
    const before = yield* facts
    const one = (yield* repair).items.find(({ rule }) => rule === "recovery-missing")
    assert.match(one?.repair?.why ?? "", /only its own row says that the order is cancelled/)
    assert.deepStrictEqual(yield* facts, before)
  })
)

test(
  "what the archive has forgotten keeps no customer's money: a late capture of a cancelled order, and one after a declined payment",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { cancelled, declined } = yield* agreeing
    for (const order of [cancelled, declined]) {
      const id = Subscribed.newId()
      yield* sql`
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until, created_at, updated_at)
        VALUES (${id}::uuid, ${order}::uuid, 'captured', 'pm_ok', 100, 'EUR', 100, clock_now(), clock_now(), clock_now())`
      yield* chargeAtGateway(id, 100)
    }
    yield* sql`DELETE FROM event_log`
    const { items } = yield* repair
    for (const rule of ["captured-order-cancelled", "captured-order-pending"]) {
      assert.deepStrictEqual(items.find((item) => item.rule === rule)?.repair, { outcome: "repaired", why: null })
    }
  })
)

test(
  "cursors and marks of an event that the archive has lost are written as the page says: the books agree",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { cancelled } = yield* agreeing
    yield* sql`CREATE TABLE topic AS SELECT * FROM event_log WHERE aggregate_id = ${cancelled}`
    const { id, version } = yield* undeliver(cancelled)
    yield* repair
    yield* run("INSERT INTO consumer_cursors", { "ORDER-ID": cancelled, VERSION: String(version) })
    assert.deepStrictEqual(brokenIn(yield* look), { "event-unarchived": 1 })
    // As archive refill does.
    yield* sql`INSERT INTO event_log SELECT * FROM topic WHERE event_id = ${id}::uuid`
    assert.deepStrictEqual(brokenIn(yield* look), { "event-differs": 1, "mark-lost": 4 })
    yield* run("INSERT INTO processed_events", { "EVENT-ID": id })
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

for (const [of, broken, says] of [
  ["pending", (orderId: string) => Effect.succeed(orderId), /set its status to pending .* cancel it by POST/],
  ["paid", (orderId: string) => pay(orderId as never, orderId), /set its status to paid .* refund it by POST/],
  [
    "refunded",
    (orderId: string) =>
      Effect.gen(function* () {
        yield* pay(orderId as never, orderId)
        yield* recover((yield* refund(orderId as never)).paymentId)
      }),
    /set its status to refunded with psql$/
  ]
] as const) {
  test(
    `the row of a ${of} order says cancelled: the refusal names the status that its events tell`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const orderId = yield* place
      yield* broken(orderId)
      yield* deliver
      yield* sql`UPDATE orders SET status = 'cancelled' WHERE id = ${orderId}::uuid`
      // The entry would doubt the row of a paid order first.
      yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
      const one = (yield* repair).items.find(({ rule }) => rule === "status-unannounced")
      assert.match(one?.repair?.why ?? "", says)
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
