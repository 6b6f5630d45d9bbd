/** Two damages at once, each of which hides the other one: what is right stays right, and a person hears of it. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { root } from "../../support/TestDatabase.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { cancel, pay, place, recover, refund } from "../World.ts"
import {
  agreeing,
  brokenIn,
  chargeAtGateway,
  deliver,
  look,
  paid,
  refundAtGateway,
  repair,
  repairs,
  test
} from "./Books.ts"
import { movedPaymentCases } from "./cases/MovedPaymentCases.ts"
import { asked, capture, undeliver } from "./cases/Steps.ts"
import { toldCases } from "./cases/ToldCases.ts"
import { wrongStatusCases } from "./cases/WrongStatusCases.ts"

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

for (const { broken, of, rule, why } of [...toldCases, ...movedPaymentCases, ...wrongStatusCases]) {
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
  "an event is lost before it is published, and the gateway tells of the next one: the second repair tells both, in order",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // The sale, and a refund on the gateway's pages.
    const { paymentId } = yield* paid
    yield* sql`DELETE FROM outbox_events WHERE event_type = 'OrderPaid'`
    yield* refundAtGateway(paymentId, "re_1", 100)
    // The order, and a capture of its payment.
    const orderId = yield* place
    yield* sql`DELETE FROM outbox_events WHERE aggregate_id = ${orderId}`
    yield* asked(orderId, yield* capture(orderId, "manual"))
    yield* deliver
    const manual = (yield* repair).items.filter(({ repair }) => repair?.outcome === "manual")
    assert.deepStrictEqual(manual.map(({ rule }) => rule).toSorted(), [
      "gateway-capture-unrecorded",
      "gateway-refund-unrecorded"
    ])
    for (const { repair } of manual)
      assert.match(repair?.why ?? "", /its event of version . is missing: repair once more/)
    yield* deliver
    yield* repair
    yield* deliver
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

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
      yield* asked(order, id)
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

test(
  "the archive has a second event of a version, with marks: both are named, and the day's revenue stays",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid } = yield* agreeing
    const copy = Subscribed.newId()
    yield* sql`
      INSERT INTO event_log
      SELECT ${copy}::uuid, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id,
             data, broker_partition, broker_offset, published_at
      FROM event_log WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
    yield* run("INSERT INTO processed_events", { "EVENT-ID": copy })
    const before = yield* facts
    yield* repair
    assert.deepStrictEqual(brokenIn(yield* look), { "event-differs": 2, "revenue-differs": 1 })
    assert.deepStrictEqual(yield* facts, before)
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
