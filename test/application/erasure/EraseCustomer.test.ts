/** Erasing a customer: what stops it, what it changes, and how it is audited. Orders, events and mails are made by the real use cases and consumers. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Latch, Layer, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { EraseCustomer, type Erasure } from "../../../src/application/erasure/EraseCustomer.ts"
import { erasable } from "../../../src/application/erasure/Places.ts"
import { CustomerId } from "../../../src/domain/Ids.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import { untilBlocked } from "../../support/Counters.ts"
import * as ManyOrders from "../../support/ManyOrders.ts"
import { brokenIn, deliver, layer as books, look, paid } from "../reconciliation/Books.ts"
import { cancel, pay, place, recover, refund } from "../World.ts"

const world = EraseCustomer.layer.pipe(Layer.provideMerge(books))
type World = Layer.Success<typeof world> | Scope.Scope
const test = <A, E>(name: string, body: Effect.Effect<A, E, World>) =>
  it.live(name, () => Effect.scoped(Effect.provide(body, world)), 120_000)

const ada = CustomerId.make("ada")
const operator = { actor: "grace", reason: "ticket 7" }
const erase = (as: typeof operator | "dry run" = operator) =>
  EraseCustomer.use(({ run }) => run(ada, as, () => Effect.void))
const whatOf = ({ underWay }: Erasure) => underWay.map(({ command, what }) => `${what}: ${command}`)

const customersOf = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly id: string; readonly customer: string }>`
    SELECT id, customer_id AS customer FROM orders ORDER BY id`
  return rows
})
const audited = SqlClient.SqlClient.use(
  (sql) => sql<{ readonly subjectId: string; readonly entry: string }>`
    SELECT subject_id AS "subjectId", a::text AS entry FROM operator_audit AS a WHERE action = 'erase' ORDER BY subject_id`
)

/** All mails are sent, at the first try. */
const mailsSent = SqlClient.SqlClient.use(
  (sql) => sql`
    WITH sent AS (
      UPDATE outbox_tasks SET state = 'completed', finished_at = clock_now(), attempts = 1, lease_until = NULL
      WHERE task_type = 'email' AND state <> 'completed' RETURNING task_id, payload)
    INSERT INTO mail_deliveries (task_id, kind, recipient, subject, status, created_at, updated_at, sent_at)
    SELECT task_id, payload ->> 'kind', payload ->> 'to', payload ->> 'subject', 'sent', clock_now(), clock_now(), clock_now() FROM sent`
)

/** Nothing was changed, and this is what stops it. */
const isStoppedBy = Effect.fnUntraced(function* (...patterns: ReadonlyArray<RegExp>) {
  const before = yield* customersOf
  for (const as of [operator, "dry run"] as const) {
    const erasure = yield* erase(as)
    const found = whatOf(erasure)
    assert.strictEqual(found.length, patterns.length, found.join("\n"))
    for (const [index, pattern] of patterns.entries()) assert.match(found[index]!, pattern)
    assert.strictEqual(erasure.underWayCount, patterns.length)
    assert.strictEqual(erasure.left, before.length)
    assert.strictEqual(erasure.orders, as === "dry run" ? before.length : 0)
  }
  assert.deepStrictEqual(yield* customersOf, before)
  assert.deepStrictEqual(yield* audited, [])
})

test(
  "each thing under way stops it, with the command that decides it",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    const pending = new RegExp(`^it is pending: .*POST /orders/${orderId}/cancel$`)
    const unsent = /^event \S+ is not sent: paid-once outbox status$/
    yield* isStoppedBy(unsent, pending)
    yield* deliver
    yield* isStoppedBy(pending)

    const { paymentId } = yield* pay(orderId, "k")
    yield* isStoppedBy(unsent)
    yield* sql`UPDATE payments SET status = 'manual', captured_minor = 0`
    yield* isStoppedBy(unsent, new RegExp(`^payment ${paymentId} is manual: paid-once payments settle ${paymentId}$`))
    yield* sql`UPDATE payments SET status = 'captured', captured_minor = amount_minor`

    // The mail is asked for by a consumer that has not come to the event.
    yield* sql`
      WITH sent AS (DELETE FROM outbox_events RETURNING *)
      INSERT INTO event_log
      SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data,
             0, 0, clock_now() FROM sent`
    const behind = (consumer: string) =>
      new RegExp(`^${consumer} has not come to its last event: paid-once consumers lag$`)
    yield* isStoppedBy(behind("analytics"), behind("billing"), behind("inventory"), behind("receipts"))
    yield* sql`UPDATE consumer_cursors SET version = 2 WHERE consumer_name <> 'receipts'`
    yield* isStoppedBy(behind("receipts"))

    const [event] = yield* sql<{
      readonly id: string
    }>`SELECT event_id AS id FROM event_log WHERE event_type = 'OrderPaid'`
    const held = (status: string) => sql`
      INSERT INTO inbox_holds VALUES ('receipts', ${orderId}, 'orders', ${event!.id}, ${status}, 1, NULL, 'no', '[]', clock_now())
      ON CONFLICT (consumer_name, aggregate_id) DO UPDATE SET status = excluded.status`
    yield* held("gap")
    yield* isStoppedBy(new RegExp(`^receipts waits for what .*: paid-once inbox skip receipts ${event!.id}$`))
    yield* held("dead")
    yield* isStoppedBy(
      new RegExp(`^receipts could not apply .*: paid-once inbox retry receipts ${event!.id}, or inbox discard`)
    )
    yield* sql`DELETE FROM inbox_holds`
    yield* sql`UPDATE consumer_cursors SET version = 2`

    yield* sql`
      INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, held_at)
      VALUES ('Order', ${orderId}, 1, 'orders', ${event!.id}::uuid, 1, 5, clock_now())`
    yield* isStoppedBy(
      new RegExp(`^the broker has refused event ${event!.id}: paid-once outbox retry ${event!.id}, or outbox discard`)
    )
    yield* sql`DELETE FROM outbox_holds`
    assert.strictEqual((yield* erase("dry run")).underWayCount, 0)

    // A version that an operator has discarded at the outbox never comes, and its dead letter loses the id, too.
    yield* sql`UPDATE consumer_cursors SET version = 1`
    assert.strictEqual((yield* erase("dry run")).underWayCount, 4)
    yield* sql`
      INSERT INTO outbox_dead_letters (lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                       occurred_at, trace_id, span_id, record_bytes, data, status, attempts, history, ended_at)
      SELECT 1, 1, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, 1,
             data, 'discarded', 1, '[]', clock_now() FROM event_log WHERE event_type = 'OrderPaid'`
    assert.deepInclude(yield* erase(), { orders: 1, underWayCount: 0, left: 0 })
    const letters = yield* sql`SELECT data ->> 'customerId' AS customer FROM outbox_dead_letters`
    assert.deepStrictEqual(letters, [{ customer: `erased-${orderId}` }])
  })
)

test(
  "a mail that is not sent stops it, from the task to the decision",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* paid
    yield* deliver
    yield* isStoppedBy(/^mail (\S+) waits to be sent: paid-once tasks show \1, or tasks cancel \1$/)
    // Also where neither the archive nor the ledger knows the event any more, but as a dead letter of billing.
    yield* sql`
      WITH gone AS (DELETE FROM event_log WHERE event_type = 'OrderPaid' RETURNING *), book AS (DELETE FROM billing_ledger)
      INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset, record_headers,
                                      parked_at, status, attempts, history, ended_at)
      SELECT 'billing', aggregate_id, 2, event_id, topic, 0, 0, '{}', clock_now(), 'discarded', 1, '[]', clock_now() FROM gone`
    yield* isStoppedBy(/waits to be sent/)
    yield* mailsSent
    yield* sql`UPDATE mail_deliveries SET status = 'uncertain', sent_at = NULL`
    yield* sql`UPDATE outbox_tasks SET state = 'dead' WHERE task_type = 'email'`
    yield* isStoppedBy(/^mail (\S+) was not sent: paid-once mail retry \1, or mail resolve \1 --as given-up$/)
    yield* sql`UPDATE outbox_tasks SET state = 'cancelled' WHERE task_type = 'email'`
    assert.strictEqual((yield* erase()).orders, 1)
    const [{ to }] = (yield* sql<{
      readonly to: string
    }>`SELECT payload ->> 'to' AS to FROM outbox_tasks WHERE task_type = 'email'`) as [{ readonly to: string }]
    assert.match(to, /^erased-/)
  })
)

test(
  "each order gets an id of its own, with an entry in the audit, and the books agree",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const kept = yield* paid
    const back = yield* paid
    yield* recover((yield* refund(back.orderId)).paymentId)
    yield* cancel(yield* place)
    yield* deliver
    yield* mailsSent
    // A mail server's words, and a dead letter that was given up.
    yield* sql`UPDATE outbox_tasks SET last_error = 'no ada here', history = '[{"error": "no ada@customers.example here"}]' WHERE task_type = 'email'`
    yield* sql`
      INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset, record_value,
                                      record_headers, parked_at, status, attempts, history, ended_at)
      SELECT 'a-former-one', aggregate_id, 1, event_id, topic, 0, 0, '\xff'::bytea || convert_to(data::text, 'UTF8'), '{}', clock_now(),
             'discarded', 1, '[]', clock_now() FROM event_log WHERE event_type = 'OrderPlaced'`
    const before = yield* sql`SELECT id, version, status, updated_at FROM orders ORDER BY id`
    const eventsBefore = yield* sql<{
      readonly data: string
    }>`SELECT data::text AS data FROM event_log ORDER BY event_id`

    const erasure = yield* erase()
    assert.deepInclude(erasure, { orders: 3, underWayCount: 0, left: 0, dryRun: false })
    assert.deepInclude(erasure.answers, { count: 2, until: null, keptDays: null })
    const orders = yield* customersOf
    assert.deepStrictEqual(
      orders.map(({ customer }) => customer),
      orders.map(({ id }) => `erased-${id}`)
    )
    assert.deepStrictEqual(yield* sql`SELECT id, version, status, updated_at FROM orders ORDER BY id`, before)
    // In the archive nothing but the id is another one.
    const events = yield* sql<{ readonly id: string; readonly data: string }>`
      SELECT aggregate_id AS id, data::text AS data FROM event_log ORDER BY event_id`
    assert.deepStrictEqual(
      events.map(({ data, id }) => data.replace(`erased-${id}`, "ada")),
      eventsBefore.map(({ data }) => data)
    )
    for (const table of [
      "orders",
      "event_log",
      "inbox_dead_letters",
      "outbox_tasks",
      "mail_deliveries",
      "operator_audit"
    ]) {
      const inBytes = Buffer.from('"ada"').toString("hex")
      const found = yield* sql.unsafe(
        `SELECT 1 FROM ${table} AS t WHERE t::text ~ '\\mada\\M' OR t::text LIKE '%${inBytes}%' LIMIT 1`
      )
      assert.deepStrictEqual(found, [], table)
    }
    const entries = yield* audited
    assert.deepStrictEqual(
      entries.map(({ subjectId }) => subjectId),
      orders.map(({ id }) => id)
    )
    for (const { entry } of entries) assert.include(entry, "ticket 7")
    assert.deepStrictEqual(brokenIn(yield* look), {})

    // Once more: nothing is left to do, and it still finds the answers that wait for their retention.
    yield* sql`INSERT INTO retention (table_name, kept_days, noted_by, noted_at) VALUES ('idempotency_keys', 7, 'one', clock_now())`
    const again = yield* erase()
    assert.deepInclude(again, { orders: 0, underWayCount: 0, left: 0, lastEventAt: null })
    assert.deepInclude(again.answers, { count: 2, keptDays: 7 })
    const [{ days }] = (yield* sql<{ readonly days: number }>`
      SELECT extract(epoch FROM ${again.answers.until}::timestamptz - max(created_at))::float8 / 86400 AS days FROM idempotency_keys`) as [
      { readonly days: number }
    ]
    assert.closeTo(days, 7, 0.001)
    assert.strictEqual((yield* audited).length, 3)

    // A refund that comes later is booked as ever, and its notice goes nowhere.
    yield* recover((yield* refund(kept.orderId)).paymentId)
    yield* deliver
    assert.deepStrictEqual(brokenIn(yield* look), {})
    const notice =
      yield* sql`SELECT payload ->> 'to' AS to FROM outbox_tasks WHERE task_type = 'email' AND state = 'pending'`
    assert.deepStrictEqual(notice, [{ to: `erased-${kept.orderId}@customers.example` }])
  })
)

test(
  "a customer with many orders is erased in parts, up to one that something is under way of",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* ManyOrders.fill(1_200)
    yield* sql`UPDATE orders SET customer_id = 'ada'`
    const told: Array<number> = []
    const placing = Effect.provideContext(Effect.asVoid(place), yield* Effect.context<World>())
    // Placed while the run is at work: it comes to it, and stops there.
    const done = yield* EraseCustomer.use(({ run }) =>
      run(ada, operator, ({ orders, phase }) =>
        phase === "looking" || told.push(orders) > 1 ? Effect.void : Effect.orDie(placing)
      )
    )
    assert.deepInclude(done, { orders: 1_000, left: 201 })
    assert.strictEqual(done.underWayCount, 2)
    assert.deepStrictEqual(told, [500, 1_000])
    assert.strictEqual((yield* audited).length, 1_000)
    const distinct = yield* sql`SELECT count(DISTINCT customer_id)::int4 AS count FROM orders`
    assert.deepStrictEqual(distinct, [{ count: 1_001 }])
  })
)

test(
  "a refill of the archive waits for an erasure that is under way, and knows whom it has erased",
  Effect.gen(function* () {
    const { orderId } = yield* paid
    const other = yield* place
    const erased = [orderId, other, "no order"].map((aggregateId) => ({ aggregateType: "Order", aggregateId }))
    const asked = Transaction.run(erasable.erasedOf(erased))
    assert.deepStrictEqual([...(yield* asked)], [])
    const isHeld = yield* Latch.make(false)
    const mayEnd = yield* Latch.make(false)
    const erasing = yield* Effect.forkChild(
      Transaction.run(
        Effect.gen(function* () {
          const { sql } = yield* Transaction
          yield* sql`SELECT id FROM orders WHERE id = ${orderId}::uuid FOR UPDATE`
          yield* isHeld.open
          yield* mayEnd.await
          yield* sql`UPDATE orders SET customer_id = 'erased-' || id WHERE id = ${orderId}::uuid`
        })
      )
    )
    yield* isHeld.await
    const asking = yield* Effect.forkChild(asked)
    yield* untilBlocked("the refill to wait")
    yield* mayEnd.open
    yield* Fiber.join(erasing)
    assert.deepStrictEqual([...(yield* Fiber.join(asking))], [orderId])
  })
)
