/** A command whose shell has other variables than the service: what the service has forgotten is no difference, and nothing is repaired for it. */
import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "effect/sql"
import * as ArchiveNote from "../../../src/operations/ArchiveNote.ts"
import * as Maintenance from "../../../src/operations/Maintenance.ts"
import { QueueSettings } from "../../../src/outbox/Queue.ts"
import * as Retention from "../../../src/platform/Retention.ts"
import * as DatabaseClock from "../../support/DatabaseClock.ts"
import { inSnapshot } from "../../../src/application/reconciliation/SqlRule.ts"
import { agreeing, brokenIn, deliver, look, paid, repair, test } from "./Books.ts"

/** The service keeps everything for a day or two. The reconciliation of these tests runs with the defaults: 3, 8 and 30 days. */
const service = { outboxDays: 1, inboxDays: 2, taskDays: 2 }

/** Five days pass, and the service's upkeep runs. */
const forgetting = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* DatabaseClock.install
  yield* agreeing
  yield* sql`
    UPDATE outbox_tasks SET state = 'completed', attempts = 1, lease_until = NULL, finished_at = clock_now() WHERE task_type = 'email'`
  yield* DatabaseClock.advance("5 days")
  yield* Effect.provideService(Maintenance.runOnce(), Retention.RetentionSettings, service)
  assert.deepStrictEqual(
    yield* sql`SELECT FROM outbox_tasks WHERE task_type = 'email' UNION ALL SELECT FROM processed_events`,
    []
  )
})

const mails = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`SELECT idempotency_key AS key FROM outbox_tasks WHERE task_type = 'email'`
)
const revenue = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`SELECT day::text, amount_minor::text AS amount FROM revenue_daily WHERE amount_minor <> 0 ORDER BY day`
)

test(
  "a repair sends no mail a second time, though its shell keeps tasks for longer than the service",
  Effect.gen(function* () {
    yield* forgetting
    assert.notProperty(brokenIn(yield* repair), "mail-missing")
    assert.deepStrictEqual(yield* mails, [])
  })
)

test(
  "a repair leaves a day's revenue, though its shell keeps marks for longer than the service",
  Effect.gen(function* () {
    yield* forgetting
    const before = yield* revenue
    assert.strictEqual(before.length, 1)
    assert.notProperty(brokenIn(yield* repair), "revenue-differs")
    assert.deepStrictEqual(yield* revenue, before)
  })
)

test(
  "an event that analytics has not read yet is not in a day's revenue, though its mark might be forgotten",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* agreeing
    const { orderId } = yield* paid
    // Published, and booked by billing alone. The second event is in the ledger only.
    yield* sql`
      WITH sent AS (DELETE FROM outbox_events RETURNING *),
      booked AS (
        INSERT INTO billing_ledger (event_id, order_id, payment_id, debit_account, credit_account, amount_minor, currency, occurred_at, recorded_at)
        SELECT event_id, aggregate_id::uuid, (data ->> 'paymentId')::uuid, 'gateway', 'sales', 100, 'EUR', occurred_at, clock_now()
        FROM sent WHERE event_type = 'OrderPaid')
      INSERT INTO event_log
      SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data,
             0, 0, clock_now() FROM sent`
    const differs = Effect.map(look, (report) => brokenIn(report)["revenue-differs"])
    assert.isUndefined(yield* differs)
    yield* Retention.forget("processed_events", 0, { margin: "-2 hours" })
    assert.isUndefined(yield* differs)
    yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
    assert.isUndefined(yield* differs)
  })
)

test(
  "upkeep drops no day while a page is compared: its snapshot would see neither the day nor that it was dropped",
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* DatabaseClock.install
    yield* DatabaseClock.advance("5 days")
    const upkeep = Effect.provideService(Maintenance.runOnce(), Retention.RetentionSettings, service)
    const drops = (report: Maintenance.Report) =>
      report.flatMap(({ outcome, table }) =>
        outcome === "dropped" || outcome === "busy" ? [`${table} ${outcome}`] : []
      )
    const [begun, seen] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const page = yield* Effect.forkChild(
      inSnapshot(sql, Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(seen)))
    )
    yield* Deferred.await(begun)
    assert.includeMembers(drops(yield* upkeep), ["event_log busy", "processed_events busy"])
    yield* Deferred.succeed(seen, undefined)
    yield* Fiber.join(page)
    assert.includeMembers(drops(yield* upkeep), ["event_log dropped", "processed_events dropped"])
  })
)

test(
  "what was published while the archive was off is no difference once it is on again, and what the archive loses then is one",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* DatabaseClock.install
    const starts = (archive: boolean) =>
      Effect.scoped(
        Layer.build(ArchiveNote.layer).pipe(
          Effect.provideService(QueueSettings, { batchSize: 1_000, batchBytes: 900_000, archive })
        )
      )
    const withoutArchive = Effect.gen(function* () {
      const order = yield* paid
      yield* deliver
      yield* sql`DELETE FROM event_log WHERE aggregate_id = ${order.orderId}`
      return order
    })
    yield* Maintenance.noteKept
    yield* starts(true)
    yield* agreeing
    const lost = yield* withoutArchive
    assert.include(brokenIn(yield* look), { "event-unarchived": 2 })
    yield* starts(false)
    yield* withoutArchive
    assert.deepStrictEqual(brokenIn(yield* look), {})
    // A deploy, in which other dispatchers publish without the archive for some time yet.
    yield* starts(true)
    yield* withoutArchive
    yield* starts(true)
    assert.deepStrictEqual(brokenIn(yield* look), {})
    yield* DatabaseClock.advance("2 hours")
    const later = yield* withoutArchive
    assert.deepStrictEqual(
      (yield* look).items.map(({ orderId, rule }) => [orderId, rule]),
      [1, 2].map(() => [later.orderId, "event-unarchived"])
    )
    assert.notStrictEqual(later.orderId, lost.orderId)
  })
)
