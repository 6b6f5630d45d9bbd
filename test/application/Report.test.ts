import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Reports } from "../../src/application/Reports.ts"
import { compute, report } from "../../src/application/tasks/Report.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import { eventually } from "../support/Counters.ts"
import { newId } from "../support/Subscribed.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const services = Reports.layer.pipe(
  Layer.provideMerge(Tasks.layer),
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer)
)

/** A payment that was captured and refunded at these times. */
const payment = Effect.fnUntraced(function* (
  amountMinor: number,
  currency: string,
  capturedAt: string,
  refundedAt: string | null = null
) {
  const sql = yield* SqlClient.SqlClient
  const order = newId()
  yield* sql`
    INSERT INTO orders VALUES (${order}::uuid, 'ada', ${currency}, 'paid', 2, ${amountMinor}::int8, ${capturedAt}::timestamptz, ${capturedAt}::timestamptz)`
  yield* sql`
    INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, refunded_minor, leased_until,
                          created_at, updated_at, captured_at, refund_begun_at, refunded_at)
    VALUES (${newId()}::uuid, ${order}::uuid, ${refundedAt === null ? "captured" : "refunded"}, 'pm_ok', ${amountMinor}::int8, ${currency},
            ${amountMinor}::int8, ${refundedAt === null ? 0 : amountMinor}::int8, ${capturedAt}::timestamptz, ${capturedAt}::timestamptz,
            ${capturedAt}::timestamptz, ${capturedAt}::timestamptz, ${refundedAt}::timestamptz, ${refundedAt}::timestamptz)`
})

const clear = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`TRUNCATE outbox_tasks, generated_reports, payments, orders CASCADE`
)

layer(services, { excludeTestServices: true })("report", (it) => {
  it.effect("counts each capture and each refund on its own UTC day, by currency", () =>
    Effect.gen(function* () {
      yield* clear
      yield* payment(1_000, "EUR", "2026-02-28T23:59:59.999Z")
      yield* payment(500, "EUR", "2026-02-28T00:00:00.000Z", "2026-03-01T00:30:00.000+01:00")
      yield* payment(700, "EUR", "2026-03-01T00:00:00.000Z", "2026-03-02T12:00:00.000Z")
      yield* payment(900, "JPY", "2026-03-02T12:00:00.000Z")
      yield* payment(1, "EUR", "2026-02-27T23:59:59.999Z")
      yield* payment(1, "EUR", "2026-03-03T00:00:00.000Z")
      const { csv, totals } = yield* compute({ from: "2026-02-28", to: "2026-03-02" })
      assert.strictEqual(
        csv,
        [
          "day,currency,captured_minor,refunded_minor,net_minor,captures,refunds",
          "2026-02-28,EUR,1500,500,1000,2,1",
          "2026-03-01,EUR,700,0,700,1,0",
          "2026-03-02,EUR,0,700,-700,0,1",
          "2026-03-02,JPY,900,0,900,1,0",
          ""
        ].join("\r\n")
      )
      assert.deepStrictEqual(totals, [
        { currency: "EUR", capturedMinor: "2200", refundedMinor: "1200", netMinor: "1000", captures: 3, refunds: 2 },
        { currency: "JPY", capturedMinor: "900", refundedMinor: "0", netMinor: "900", captures: 1, refunds: 0 }
      ])
    })
  )

  it.effect("a day of a report begins and ends with the UTC day, whatever zone the sessions are in", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      const [zone] = yield* sql<{ readonly is_utc: boolean }>`
        SELECT extract(timezone FROM clock_timestamp()) = 0 AS is_utc`
      assert.isFalse(zone?.is_utc, "the test needs sessions outside UTC")
      const [last, first] = ["2026-03-01T23:59:59.999Z", "2026-03-02T00:00:00.000Z"]
      yield* payment(1, "EUR", last)
      yield* payment(20, "EUR", first)
      yield* payment(300, "EUR", "2026-01-01T12:00:00.000Z", last)
      yield* payment(4_000, "EUR", "2026-01-01T12:00:00.000Z", first)
      const linesOf = (day: string) =>
        Effect.map(compute({ from: day, to: day }), ({ csv }) => csv.split("\r\n").slice(1, -1))
      assert.deepStrictEqual(yield* linesOf("2026-03-01"), ["2026-03-01,EUR,1,300,-299,1,1"])
      assert.deepStrictEqual(yield* linesOf("2026-03-02"), ["2026-03-02,EUR,20,4000,-3980,1,1"])
      const [now] = yield* sql<{
        readonly millis: number
      }>`SELECT (extract(epoch FROM clock_now()) * 1000)::float8 AS millis`
      const { asOf } = yield* compute({ from: "2026-03-01", to: "2026-03-01" })
      assert.isBelow(Math.abs(Date.parse(asOf) - now!.millis), 60_000)
    })
  )

  it.effect("all figures come from one snapshot: a commit during the computation is not in them", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      yield* payment(100, "EUR", "2026-03-01T12:00:00.000Z")
      // The report's first statement, which takes the snapshot, waits in clock_now() for this lock.
      yield* sql.unsafe(
        `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE
         AS 'SELECT pg_advisory_xact_lock_shared(7); SELECT clock_timestamp()'`
      )
      const [held, release] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      yield* Effect.forkChild(
        Transaction.run(
          Effect.gen(function* () {
            const transaction = yield* Transaction
            yield* transaction.sql`SELECT pg_advisory_xact_lock(7)`
            yield* Deferred.succeed(held, undefined)
            yield* Deferred.await(release)
          })
        )
      )
      yield* Deferred.await(held)
      const computing = yield* Effect.forkChild(compute({ from: "2026-03-01", to: "2026-03-02" }))
      yield* eventually(
        "the report to wait",
        Effect.map(
          sql`SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`,
          (rows) => rows.length > 0
        )
      )
      yield* payment(10, "EUR", "2026-03-02T12:00:00.000Z")
      yield* Deferred.succeed(release, undefined)
      const { totals } = yield* Fiber.join(computing)
      yield* sql.unsafe(
        `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
         AS 'SELECT clock_timestamp()'`
      )
      assert.strictEqual(totals[0]?.capturedMinor, "100")
      assert.strictEqual((yield* compute({ from: "2026-03-01", to: "2026-03-02" })).totals[0]?.capturedMinor, "110")
    })
  )

  it.effect("totals are exact, above 2^53 and above 2^63, in one day and over several", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      const largest = Number.MAX_SAFE_INTEGER
      yield* payment(largest, "EUR", "2026-03-01T12:00:00.000Z")
      yield* payment(largest, "EUR", "2026-03-01T12:00:00.000Z", "2026-03-02T12:00:00.000Z")
      const { csv, totals } = yield* compute({ from: "2026-03-01", to: "2026-03-02" })
      assert.include(csv, "2026-03-01,EUR,18014398509481982,0,18014398509481982,2,0\r\n")
      const expected = { capturedMinor: "18014398509481982", refundedMinor: "9007199254740991" }
      assert.deepInclude(totals[0], { ...expected, netMinor: "9007199254740991" })
      // 1,025 of the largest orders pass a bigint of Postgres.
      yield* sql`
        WITH placed AS (
          INSERT INTO orders
          SELECT gen_random_uuid(), 'ada', 'JPY', 'paid', 2, ${largest}::int8, '2026-03-01T12:00:00Z', '2026-03-01T12:00:00Z'
          FROM generate_series(1, 1025) RETURNING id)
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until,
                              created_at, updated_at, captured_at)
        SELECT gen_random_uuid(), id, 'captured', 'pm_ok', ${largest}::int8, 'JPY', ${largest}::int8, '2026-03-01T12:00:00Z',
               '2026-03-01T12:00:00Z', '2026-03-01T12:00:00Z', '2026-03-01T12:00:00Z' FROM placed`
      const many = yield* compute({ from: "2026-03-01", to: "2026-03-01" })
      assert.strictEqual(many.totals[1]?.capturedMinor, String(BigInt(largest) * 1_025n))
    })
  )

  it.effect("a report of more than 10,000 lines is refused, and fewer days of it are not", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      yield* sql`
        WITH paid AS (
          SELECT gen_random_uuid() AS id, gen_random_uuid() AS payment, 'A' || chr(65 + c / 26) || chr(65 + c % 26) AS currency,
                 '2026-01-01T12:00:00Z'::timestamptz + d * interval '1 day' AS at
          FROM generate_series(0, 27) AS c, generate_series(0, 364) AS d
        ), placed AS (
          INSERT INTO orders SELECT id, 'ada', currency, 'paid', 2, 1, at, at FROM paid)
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, leased_until,
                              created_at, updated_at, captured_at)
        SELECT payment, id, 'captured', 'pm_ok', 1, currency, 1, at, at, at, at FROM paid`
      const answer = yield* Effect.match(compute({ from: "2026-01-01", to: "2026-12-31" }), {
        onFailure: ({ message }) => message,
        onSuccess: ({ csv }) => `a report of ${csv.split("\n").length} lines`
      })
      assert.strictEqual(answer, "there are more than 10000 lines: ask for fewer days")
      assert.strictEqual((yield* compute({ from: "2026-01-01", to: "2026-06-30" })).totals.length, 28)
    })
  )

  it.effect("a report of an older version, with its totals as numbers, can still be read", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      const reports = yield* Reports
      const taskId = yield* reports.request({ from: "2026-03-01", to: "2026-03-01" })
      yield* sql`UPDATE outbox_tasks SET state = 'completed', finished_at = clock_now()`
      const totals = [{ currency: "EUR", capturedMinor: 250, refundedMinor: 0, netMinor: 250, captures: 1, refunds: 0 }]
      yield* sql`
        INSERT INTO generated_reports (task_id, from_day, to_day, as_of, totals, csv, created_at)
        VALUES (${taskId}::uuid, '2026-03-01', '2026-03-01', clock_now(), ${JSON.stringify(totals)}::text::jsonb, '', clock_now())`
      assert.strictEqual((yield* reports.get(taskId)).result?.totals[0]?.netMinor, "250")
    })
  )

  it.effect("the same days are one report, for concurrent requests too; its result commits with the task's end", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      const reports = yield* Reports
      yield* payment(250, "EUR", "2026-03-01T12:00:00.000Z")
      const range = { from: "2026-03-01", to: "2026-03-31" }
      const ids = yield* Effect.all(
        Array.from({ length: 6 }, () => reports.request(range)),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(new Set(ids).size, 1)
      const taskId = ids[0]!
      assert.notStrictEqual(yield* reports.request({ ...range, from: "2026-03-02" }), taskId)
      assert.deepStrictEqual(yield* reports.get(taskId), { taskId, state: "pending", lastError: null, result: null })

      const finishing = yield* report.run(range, {
        taskId,
        attempt: 1,
        isLastAttempt: false,
        idempotencyKey: null,
        enqueuedAt: "2026-04-01T00:00:00.000Z",
        traceId: undefined
      })
      const tasks = yield* Tasks
      yield* Transaction.run(Effect.andThen(finishing!, tasks.settle(taskId)))
      const { result, state } = yield* reports.get(taskId)
      assert.strictEqual(state, "completed")
      assert.deepInclude(result, range)
      const [stored] = yield* sql<{ readonly millis: number }>`
        SELECT (extract(epoch FROM as_of) * 1000)::float8 AS millis FROM generated_reports`
      assert.strictEqual(Date.parse(result!.asOf), stored!.millis)
      assert.deepStrictEqual(result?.totals, [
        { currency: "EUR", capturedMinor: "250", refundedMinor: "0", netMinor: "250", captures: 1, refunds: 0 }
      ])
      assert.match(result?.csv ?? "", /^day,.*\r\n2026-03-01,EUR,250,0,250,1,0\r\n$/)
      assert.strictEqual(yield* reports.request(range), taskId)
    })
  )

  it.effect("a report whose task is dead is computed again on the next request", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      const reports = yield* Reports
      const range = { from: "2026-03-01", to: "2026-03-01" }
      const taskId = yield* reports.request(range)
      yield* sql`UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now(), attempts = 11, last_error = 'the disk was full'`
      assert.strictEqual(yield* reports.request(range), taskId)
      assert.deepInclude(yield* reports.get(taskId), { state: "pending" })
    })
  )

  it.effect("a payment stores the times of its capture and its refund, whatever statement moved it", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      yield* payment(100, "EUR", "2026-03-01T12:00:00.000Z")
      yield* sql`UPDATE payments SET status = 'refunded', refunded_minor = captured_minor, refund_begun_at = clock_now()`
      const [row] = yield* sql`
        SELECT captured_at = '2026-03-01T12:00:00Z' AS kept, clock_now() - refunded_at < interval '1 minute' AS fresh FROM payments`
      assert.deepStrictEqual(row, { kept: true, fresh: true })
    })
  )
})
