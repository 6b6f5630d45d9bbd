/** Effects on their way, and decisions of an operator, are no differences. A book that can't be read says so. */
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Maintenance from "../../../src/operations/Maintenance.ts"
import { Reconciliation, ReconciliationSettings } from "../../../src/application/reconciliation/Reconciliation.ts"
import { GatewayServer } from "../../../src/sandbox/GatewayServer.ts"
import { sendElsewhere } from "../../http/Service.ts"
import { pay, place, recover, refund } from "../World.ts"
import { agreeing, brokenIn, chargeAtGateway, deliver, look, paid, publish, repair, repairs, test } from "./Books.ts"

const tell = (behaviour: object) =>
  Effect.flatMap(GatewayServer, ({ url }) => sendElsewhere(`${url}/behaviour`, { method: "PUT", body: behaviour }))

/** Moves the consumer's cursor, as applying, discarding and skipping do. */
const pass = (consumer: string, orderId: string, version: number) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`
      INSERT INTO consumer_cursors VALUES (${consumer}, ${orderId}, 'Order', ${version}::int4)
      ON CONFLICT (consumer_name, aggregate_id, aggregate_type) DO UPDATE SET version = excluded.version`
  )

test(
  "events that are queued, or published and not yet applied, and payments without an outcome, are no difference",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { pending: orderId } = yield* agreeing
    // Queued, with all that follows from it: ledger, revenue, reservations and mail. The consumers have had the event before it.
    yield* pay(orderId, orderId)
    assert.deepStrictEqual(brokenIn(yield* look), {})
    // Published, and read by no consumer.
    yield* publish
    assert.deepStrictEqual(brokenIn(yield* look), {})
    // A charge and a refund that the gateway has made, and whose answers were lost.
    yield* tell({ mode: "error-after", times: 1 })
    const open = yield* place
    yield* pay(open, "lost")
    yield* tell({ mode: "normal" })
    const { paymentId } = yield* refund(orderId)
    yield* tell({ mode: "error-after", times: 2 })
    yield* Effect.ignore(recover(paymentId))
    yield* tell({ mode: "normal" })
    const states = yield* sql`SELECT status FROM payments WHERE status IN ('charging', 'refunding') ORDER BY status`
    assert.deepStrictEqual(states, [{ status: "charging" }, { status: "refunding" }])
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "an event that waits behind a refused one, or is a dead letter, is not missing",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* agreeing
    yield* paid
    yield* sql`
      INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, held_at)
      SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, 10, clock_now() FROM outbox_events WHERE aggregate_version = 1`
    yield* sql`
      INSERT INTO outbox_dead_letters SELECT e.*, 'dead', 10, 'refused', '[]', clock_now() FROM outbox_events AS e WHERE aggregate_version = 1`
    yield* sql`INSERT INTO outbox_parked SELECT * FROM outbox_events WHERE aggregate_version = 2`
    yield* sql`DELETE FROM outbox_events`
    assert.deepStrictEqual(brokenIn(yield* look), {})
    // Once it is lost there, too, it is.
    yield* sql`DELETE FROM outbox_parked`
    assert.deepStrictEqual(brokenIn(yield* look), { "event-missing": 1 })
  })
)

test(
  "an effect that an operator has given up is not missing",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* agreeing
    const orderId = yield* place
    yield* deliver
    yield* pay(orderId, orderId)
    yield* publish
    // Billing has discarded OrderPaid, and receipts were let go on without it.
    yield* sql`
      INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset, record_headers, parked_at,
                                      status, attempts, history, ended_at)
      SELECT 'billing', aggregate_id, aggregate_version, event_id, topic, 0, 0, '{}', clock_now(), 'discarded', 1, '[]', clock_now()
      FROM event_log WHERE aggregate_id = ${orderId} AND aggregate_version = 2`
    yield* sql`
      INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
      SELECT clock_now(), 'ada', 'skip', 'it is gone', 'inbox event', 'receipts ' || event_id, '{"version": 1}', '{"version": 2}'
      FROM event_log WHERE aggregate_id = ${orderId} AND aggregate_version = 2`
    yield* pass("billing", orderId, 2)
    yield* pass("receipts", orderId, 2)
    assert.deepStrictEqual(brokenIn(yield* look), {})
    // Without the decisions both are.
    yield* sql`DELETE FROM inbox_dead_letters`
    yield* sql`DELETE FROM operator_audit`
    assert.deepStrictEqual(brokenIn(yield* look), { "billing-entry-missing": 1, "mail-missing": 1, "mark-lost": 2 })
  })
)

test(
  "what the archive, the marks and the tasks have forgotten is not missing",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid, refunded } = yield* agreeing
    // Ten weeks pass: all retentions are over.
    yield* sql`CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
               AS 'SELECT clock_timestamp() + interval ''70 days'''`
    yield* Maintenance.runOnce()
    yield* sql`DELETE FROM event_log`
    yield* sql`DELETE FROM processed_events`
    yield* sql`DELETE FROM outbox_tasks WHERE state = 'completed' OR task_type = 'email'`
    assert.deepStrictEqual(brokenIn(yield* look), {})
    // The ledger and the revenue are still compared.
    yield* sql`UPDATE revenue_daily SET amount_minor = 7`
    assert.deepStrictEqual(brokenIn(yield* repair), {})
    assert.deepStrictEqual(yield* sql`SELECT amount_minor::text AS amount FROM revenue_daily`, [{ amount: "100" }])
    yield* sql`DELETE FROM billing_ledger WHERE order_id IN (${paid.orderId}::uuid, ${refunded.orderId}::uuid) AND debit_account = 'refunds'`
    assert.deepStrictEqual(brokenIn(yield* look), { "billing-entry-missing": 1, "revenue-differs": 1 })
  })
)

test(
  "without a gateway its rules count as before, and all others are checked",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid } = yield* agreeing
    yield* chargeAtGateway("a-key-of-nobody", 100)
    assert.deepStrictEqual(brokenIn(yield* look), { "gateway-charge-unknown": 1 })
    yield* tell({ mode: "down" })
    yield* sql`DELETE FROM inventory_reservations WHERE status = 'released'`
    yield* sql`UPDATE revenue_daily SET amount_minor = 7`
    const report = yield* look
    assert.deepStrictEqual(brokenIn(report), { "gateway-charge-unknown": 1, "revenue-differs": 1 })
    assert.strictEqual(report.differences, 2)
    assert.match(report.notCompared[0]!.why, /the gateway's ledger can't be read: it answered 503/)
    assert.include(report.notCompared[0]!.rules, "gateway-capture-missing")
    // Nobody knows what the gateway says of the order's payment: no repair builds on it.
    yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
    const mended = yield* repair
    const entry = mended.items.find(({ rule }) => rule === "billing-entry-missing")
    assert.match(entry?.repair?.why ?? "", /the gateway's ledger can't be read: it answered 503/)
    yield* tell({ mode: "normal" })
    assert.deepStrictEqual(brokenIn(yield* repair), { "gateway-charge-unknown": 1 })
    yield* sql`UPDATE revenue_daily SET amount_minor = 7`
    yield* sql`DELETE FROM sandbox_gateway.charges WHERE idempotency_key = 'a-key-of-nobody'`
    const after = yield* look
    assert.deepStrictEqual([brokenIn(after), after.notCompared], [{ "revenue-differs": 1 }, []])
  })
)

test(
  "a day's revenue is repaired while sales of the last moment are on their way, and these are added as ever",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const revenue = Effect.map(
      sql<{ readonly amount: number }>`SELECT amount_minor::int4 AS amount FROM revenue_daily`,
      ([row]) => row?.amount
    )
    yield* agreeing
    const order = yield* place
    yield* deliver
    const before = (yield* revenue) ?? 0
    yield* pay(order, order)
    // In these tests a moment is a millisecond: the event's id is of a time that stays within it.
    yield* sql`
      UPDATE outbox_events
      SET event_id = overlay(event_id::text PLACING left(uuid_v7_floor_at(clock_now() + interval '10 minutes')::text, 13) FROM 1)::uuid`
    yield* sql`
      INSERT INTO event_log
      SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data,
             0, 0, clock_now() FROM outbox_events`
    yield* sql`UPDATE revenue_daily SET amount_minor = 7`
    assert.strictEqual((yield* repair).repaired, 1)
    assert.strictEqual(yield* revenue, before)
    yield* sql`DELETE FROM event_log WHERE event_id IN (SELECT event_id FROM outbox_events)`
    yield* deliver
    assert.strictEqual(yield* revenue, before + 100)
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "of repairs at once each difference is repaired once, with one entry in the audit",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid, pending } = yield* agreeing
    yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
    yield* sql`UPDATE orders SET status = 'cancelled', version = 2, updated_at = clock_now() WHERE id = ${pending}::uuid`
    yield* sql`DELETE FROM inventory_reservations WHERE order_id = ${paid.orderId}::uuid`
    // Runs of one process come one after another: a second process is needed.
    const elsewhere = Context.get(
      yield* Effect.provideService(Layer.build(Layer.fresh(Reconciliation.layer)), ReconciliationSettings, {
        graceMillis: 1
      }),
      Reconciliation
    )
    const reports = yield* Effect.all([repair, elsewhere.run({ actor: "eve", repair: { reason: "a test" } })], {
      concurrency: 2
    })
    assert.strictEqual(
      reports.reduce((sum, { repaired }) => sum + repaired, 0),
      3
    )
    assert.strictEqual((yield* repairs).length, 3)
    assert.strictEqual((yield* sql`SELECT FROM outbox_events WHERE aggregate_id = ${pending}`).length, 1)
    yield* deliver
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "a run ends, however fast customers place orders",
  Effect.gen(function* () {
    const { run } = yield* Reconciliation
    yield* agreeing
    // An order between each two pages, as long as the run could go on for them: far more than it has pages.
    const most = 100
    let placed = 0
    const context = yield* Effect.context<Effect.Services<typeof place>>()
    const progress = Effect.suspend(() =>
      placed === most
        ? Effect.void
        : Effect.asVoid(
            Effect.provideContext(Effect.orDie(Effect.tap(place, () => Effect.sync(() => placed++))), context)
          )
    )
    const { compared } = yield* run({ actor: "ada", progress })
    assert.isBelow(placed, most)
    assert.isAtLeast(compared.find(({ name }) => name === "orders")!.rows, 5)
  })
)
