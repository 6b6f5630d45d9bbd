/** The operator's lists of payments, and the story of one. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { PaymentReport } from "../../src/application/views/PaymentReport.ts"
import { SettlePayment } from "../../src/application/SettlePayment.ts"
import { PaymentId } from "../../src/domain/Ids.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskId } from "../../src/tasks/TaskType.ts"
import { rowsVisited } from "../support/Planned.ts"
import { silence } from "../support/ScriptedGateway.ts"
import { idAt } from "../support/SqlIds.ts"
import { dispute, receive, whole } from "./GatewayReports.ts"
import { pay, payUnanswered, place, recover, refund, tagOf, test } from "./World.ts"

const list = (filter: Parameters<PaymentReport["Service"]["list"]>[0] = {}, limit = 50) =>
  PaymentReport.use((report) => report.list(filter, limit))

const idsOf = (page: Effect.Success<ReturnType<typeof list>>) => page.items.map(({ id, status }) => [id, status])

test("payments that need a person or are under way are listed, newest first, page by page, beside 20,000 others", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const charging = yield* payUnanswered(gateway, yield* place, "before charge")
    const { paymentId: manual } = yield* pay(yield* place, "k")
    yield* dispute(manual, "opened")
    const refunded = yield* place
    const { paymentId: refunding } = yield* pay(refunded, "k")
    yield* refund(refunded)
    const { paymentId: declined } = yield* pay(yield* place, "k", "pm_declined")
    yield* sql`
      INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
      SELECT ${sql.literal(idAt("clock_now()"))}, 'eve', 'EUR', 'paid', 1, 100, clock_now(), clock_now() FROM generate_series(1, 20000)`
    yield* sql`
      INSERT INTO payments (id, order_id, status, payment_method, amount_minor, captured_minor, currency, leased_until, created_at, updated_at)
      SELECT ${sql.literal(idAt("clock_now()"))}, id, 'captured', 'pm_ok', 100, 100, 'EUR', clock_now(), clock_now(), clock_now()
      FROM orders WHERE customer_id = 'eve'`
    yield* sql`ANALYZE payments`

    // Captured after all: it is given back.
    const { paymentId: givenBack } = yield* pay(yield* place, "k", "pm_declined")
    yield* receive({ type: "charge.captured", key: givenBack, ...whole })

    const all = [
      [givenBack, "refunding"],
      [refunding, "refunding"],
      [manual, "manual"],
      [charging, "charging"]
    ]
    assert.deepStrictEqual(idsOf(yield* list()), all)
    assert.deepStrictEqual(idsOf(yield* list({ statuses: ["manual"] })), [all[2]])
    assert.deepStrictEqual(idsOf(yield* list({ statuses: ["declined"] })), [[declined, "declined"]])
    const first = yield* list({}, 3)
    assert.deepStrictEqual(idsOf(first), all.slice(0, 3))
    assert.strictEqual(first.nextCursor, manual)
    const second = yield* list({ cursor: manual }, 3)
    assert.deepStrictEqual(idsOf(second), all.slice(3))
    assert.isNull(second.nextCursor)
    for (const filter of [{}, { statuses: ["manual"] as const }, { cursor: manual, sinceSeconds: 60 }]) {
      assert.isAtMost(yield* rowsVisited(list(filter)), 20, JSON.stringify(filter))
    }

    yield* sql`UPDATE payments SET created_at = clock_now() - interval '2 hours' WHERE id = ${manual}::uuid`
    assert.deepStrictEqual(idsOf(yield* list({ sinceSeconds: 3_600 })), [all[0], all[1], all[3]])
  }))

test("the story of a payment tells in the order of time what happened to it, to its order, and who did what", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* sql`
      -- In microseconds: a quick machine does all of this within a few milliseconds.
      UPDATE outbox_tasks SET history = jsonb_build_array(jsonb_build_object('attempt', 1, 'error', 'no answer in time',
        'at', to_char(clock_now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
      WHERE idempotency_key = ${id}`
    const [task] = yield* sql<{ readonly id: string }>`
      SELECT task_id::text AS id FROM outbox_tasks WHERE idempotency_key = ${id}`
    yield* Tasks.use((tasks) => tasks.cancel(TaskId.make(task!.id), { actor: "ben", reason: "too slow" }))
    gateway.next("before lookUpCharge", silence)
    yield* SettlePayment.use((service) => service.settle(id, {}, { actor: "ann", reason: "now" })).pipe(Effect.flip)
    yield* SettlePayment.use((service) => service.settle(id, {}, { actor: "ann", reason: "it is there" }))
    yield* refund(orderId)
    yield* recover(id)

    const { order, payment, story } = yield* PaymentReport.use((report) => report.show(id))
    assert.deepInclude(order, { id: orderId, status: "refunded", version: 3 })
    assert.deepInclude(payment, {
      status: "refunded",
      capturedMinor: 100,
      refundedMinor: 100,
      paymentMethod: PaymentMethod.make("pm_ok")
    })
    assert.deepStrictEqual(
      story.map(({ of, what }) => `${of}: ${what.replaceAll(/[0-9a-f-]{36}/g, "ID")}`),
      [
        "order: OrderPlaced, version 1, queued",
        "payment: intent to charge, with pm_ok",
        "payment: the gateway gave no answer",
        "recovery: charge, attempt 1: no answer in time",
        "recovery: charge, task ID, 0 attempts: cancelled",
        "operator: cancel by ben: too slow",
        "order: OrderPaid, version 2, queued",
        "payment: captured",
        "operator: settle by ann: it is there",
        "payment: intent to refund, or a refund at the gateway",
        "order: OrderRefunded, version 3, queued",
        "payment: refunded",
        "recovery: refund, task ID, 0 attempts: completed"
      ]
    )
    assert.deepStrictEqual(
      story.map(({ at }) => at),
      story.map(({ at }) => at).toSorted()
    )
    const unknown = PaymentId.make("0192a000-0000-7000-8000-000000000000")
    const error = yield* Effect.flip(PaymentReport.use((report) => report.show(unknown)))
    assert.strictEqual(tagOf(error), "PaymentNotFound")
  }))
