import { assert } from "@effect/vitest"
import { Clock, Effect, Fiber, Metric } from "effect"
import { SqlClient } from "effect/sql"
import type { CancelOrder } from "../../src/application/CancelOrder.ts"
import * as Idempotency from "../../src/application/Idempotency.ts"
import { manualPayments, sampleOnce } from "../../src/application/PaymentMetrics.ts"
import type { PayOrder } from "../../src/application/PayOrder.ts"
import type { RefundOrder } from "../../src/application/RefundOrder.ts"
import * as RecoverPayment from "../../src/application/RecoverPayment.ts"
import * as StrandedPayments from "../../src/application/StrandedPayments.ts"
import { type Phase, recoveryKeyOf } from "../../src/application/tasks/PaymentRecover.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import type { TaskId } from "../../src/tasks/TaskType.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { silence } from "../support/ScriptedGateway.ts"
import {
  cancel,
  eventsOf,
  holdAnswer,
  movable,
  pay,
  payUnanswered,
  paymentOf,
  place,
  recover,
  refund,
  stateOf,
  tagOf,
  tasksOf,
  test
} from "./World.ts"

test("a charge that was made and not answered is found, and not made again", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    assert.deepStrictEqual(gateway.callsOf("charge"), [id])
    assert.deepStrictEqual(yield* tasksOf(id), [["charge", "completed"]])
  }))

test("a charge that the gateway does not know is requested again, with the same key", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "before charge")
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    assert.deepStrictEqual(gateway.callsOf("charge"), [id, id])
    assert.deepStrictEqual(gateway.captured, [id])
  }))

test("after half of the key's retention nothing is charged any more: the payment is manual, and its key still hears 202", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* DatabaseClock.advance("12 hours")
    gateway.forget()
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
    yield* sampleOnce
    assert.strictEqual((yield* Metric.value(manualPayments)).value, 1)
    assert.deepStrictEqual(gateway.captured, [id])
    assert.strictEqual((yield* pay(orderId, "k"))._tag, "Unknown")
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "other"))), "PaymentOpen")
    yield* recover(id)
    assert.deepStrictEqual(gateway.captured, [id])
  }))

test("just before that it is charged: the age counts from the intent, by the database's clock", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "before charge")
    yield* DatabaseClock.advance("11 hours 59 minutes")
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }))

test("a failed look-up is retried, and the payment is manual after the last run: never charged, never declined", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    gateway.next("before lookUpCharge", silence, silence)
    assert.strictEqual(tagOf(yield* Effect.flip(recover(id))), "OutcomeUnknown")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "charging"])
    yield* recover(id, true)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
    assert.deepStrictEqual(gateway.callsOf("charge"), [id])
    // An operator retries the recovery: it looks the charge up, and finds it.
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }))

test("a payment whose recovery died of crashes becomes manual, once", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    const sql = yield* SqlClient.SqlClient
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 0)
    yield* sql`UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now(), last_error = 'the worker was lost'`
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
    assert.deepStrictEqual(gateway.callsOf("charge"), [id])
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 0)
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }))

for (const phase of ["charge", "refund"] as const) {
  test(`a run that was frozen behind its look-up for half of the key's retention sends no ${phase} when it wakes up`, (gateway) =>
    Effect.gen(function* () {
      const { freeze, moved } = yield* movable
      const orderId = yield* place
      const id = yield* payUnanswered(gateway, orderId, "before charge")
      if (phase === "refund") {
        yield* recover(id)
        yield* refund(orderId)
      }
      const sentBefore = gateway.callsOf(phase).length
      gateway.next(phase === "charge" ? "before lookUpCharge" : "before lookUpRefund", freeze(12 * 3_600_000))
      const failure = yield* Effect.flip(Effect.provideService(recover(id), Clock.Clock, moved))
      assert.strictEqual(tagOf(failure), "OutcomeUnknown")
      assert.strictEqual(gateway.callsOf(phase).length, sentBefore)
      yield* recover(id)
      assert.deepStrictEqual(
        yield* stateOf(orderId),
        phase === "charge" ? ["paid", "captured"] : ["refunded", "refunded"]
      )
    }))
}

test("a payment that another attempt has leased is left alone", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const paying = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    const id = yield* paymentOf(orderId)
    assert.strictEqual(tagOf(yield* Effect.flip(recover(id))), "NotNow")
    yield* release
    yield* Fiber.join(paying)
    yield* recover(id)
    assert.deepStrictEqual(gateway.callsOf("charge"), [id])
  }))

for (const point of ["recover.after-lookup", "recover.after-charge", "pay.before-commit"] as const) {
  test(`a recovery that dies ${point} is followed by one that charges no second time`, (gateway) =>
    Effect.gen(function* () {
      yield* DatabaseClock.install
      const orderId = yield* place
      const id = yield* payUnanswered(gateway, orderId, "before charge")
      yield* FaultInjection.FaultControl.use(({ set }) => set(point, { action: "fail", times: 1, delayMillis: 0 }))
      yield* Effect.exit(recover(id))
      yield* DatabaseClock.advance("5 minutes")
      yield* recover(id)
      assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
      assert.deepStrictEqual(gateway.captured, [id])
      assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    }))
}

test("a pending order is cancelled at once, with its lines, and again on a repeated request; a paid one is not", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    for (let time = 0; time < 2; time++) {
      const { inFlight, view } = yield* cancel(orderId)
      assert.deepStrictEqual([inFlight, view.status, view.version], [undefined, "cancelled", 2])
    }
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderCancelled"])
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "k"))), "OrderStateConflict")
    const paid = yield* place
    yield* pay(paid, "k")
    assert.strictEqual(tagOf(yield* Effect.flip(cancel(paid))), "OrderStateConflict")
  }))

test("a capture after the cancellation is refunded once, and changes the payment alone", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    assert.strictEqual((yield* cancel(orderId)).inFlight, id)
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["cancelled", "refunding"])
    assert.deepStrictEqual(yield* tasksOf(id), [
      ["charge", "completed"],
      ["refund", "pending"]
    ])
    yield* recover(id)
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(orderId), ["cancelled", "refunded"])
    assert.deepStrictEqual([gateway.captured, gateway.given], [[id], [id]])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderCancelled"])
  }))

test("a refund is durable first, reads refunding, and is announced when the gateway has confirmed it", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    assert.strictEqual(tagOf(yield* Effect.flip(refund(orderId))), "OrderStateConflict")
    yield* pay(orderId, "k")
    const { paymentId, view } = yield* refund(orderId)
    assert.strictEqual(view.status, "refunding")
    assert.strictEqual((yield* refund(orderId)).paymentId, paymentId)
    assert.deepStrictEqual(gateway.given, [])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunded", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid", "OrderRefunded"])
    assert.deepStrictEqual(yield* tasksOf(paymentId), [
      ["charge", "completed"],
      ["refund", "completed"]
    ])
    assert.strictEqual(tagOf(yield* Effect.flip(refund(orderId))), "OrderStateConflict")
  }))

test("a refund whose payment's row was set back to captured is not forgotten: a person hears of it", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    yield* pay(orderId, "key")
    const { paymentId } = yield* refund(orderId)
    yield* sql`UPDATE payments SET status = 'captured', refund_begun_at = NULL WHERE id = ${paymentId}::uuid`
    const run = (phase: Phase) =>
      RecoverPayment.RecoverPayment.use((service) => service.recover(paymentId, { phase, isLast: false }))
    assert.strictEqual((yield* run("charge")).status, "captured")
    assert.strictEqual((yield* run("refund")).status, "manual")
    assert.deepStrictEqual(gateway.given, [])
  }))

test("a refund whose answer is lost is looked up, and not made again", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    yield* pay(orderId, "k")
    const { paymentId } = yield* refund(orderId)
    gateway.next("after refund", silence)
    assert.strictEqual(tagOf(yield* Effect.flip(recover(paymentId))), "OutcomeUnknown")
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunded", "refunded"])
    assert.deepStrictEqual([gateway.given, gateway.callsOf("refund").length], [[paymentId], 1])
  }))

test("the last run of a charge's recovery that comes after the charge leaves the refund to the refund's recovery", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* recover(id)
    yield* refund(orderId)
    const lastRun = (phase: Phase) =>
      RecoverPayment.handler({ delaysMillis: [], gatewayTimeoutMillis: 1_000 }).run(
        { paymentId: id },
        {
          taskId: "the same" as TaskId,
          idempotencyKey: recoveryKeyOf(id, phase),
          attempt: 2,
          isLastAttempt: true,
          enqueuedAt: "2026-03-01T12:00:00.000Z",
          traceId: undefined
        }
      )
    gateway.next("before lookUpRefund", silence)
    yield* lastRun("charge")
    assert.lengthOf(gateway.callsOf("lookUpCharge"), 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "refunding"])
    yield* lastRun("refund")
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "manual"])
  }))

test("a refund whose key the gateway may have forgotten is not requested again", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const orderId = yield* place
    yield* pay(orderId, "k")
    // The age counts from the intent to refund, and not from the payment.
    yield* DatabaseClock.advance("3 days")
    const { paymentId } = yield* refund(orderId)
    gateway.next("after refund", silence)
    yield* Effect.flip(recover(paymentId))
    yield* DatabaseClock.advance("12 hours")
    gateway.forget()
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "manual"])
    assert.deepStrictEqual(gateway.given, [paymentId])
  }))

test("a payment, its cancellation, refunds and recoveries all at once: captured minus refunded is what the orders say", (gateway) =>
  Effect.gen(function* () {
    for (let round = 0; round < 10; round++) {
      const orderId = yield* place
      const requests: ReadonlyArray<Effect.Effect<void, never, CancelOrder | PayOrder | RefundOrder>> = [
        ...["a", "b", "a"].map((key) => Effect.ignore(pay(orderId, key))),
        Effect.ignore(refund(orderId)),
        ...[1, 2].map(() => Effect.ignore(cancel(orderId)))
      ]
      yield* Effect.all(requests, { concurrency: "unbounded", discard: true })
      const sql = yield* SqlClient.SqlClient
      const open = yield* sql<{
        readonly id: string
      }>`SELECT id FROM payments WHERE status IN ('charging', 'refunding')`
      for (const { id } of open) yield* recover(id as never)
      const [status, ...payments] = yield* stateOf(orderId)
      const kept = payments.filter((payment) => payment === "captured").length
      assert.strictEqual(kept, status === "paid" ? 1 : 0, `${status}: ${payments.join(", ")}`)
    }
    const sql = yield* SqlClient.SqlClient
    const [{ paid } = { paid: 0 }] = yield* sql<{ readonly paid: number }>`
      SELECT count(*)::int4 AS paid FROM orders WHERE status = 'paid'`
    assert.strictEqual(gateway.captured.length - gateway.given.length, paid)
    assert.strictEqual(new Set(gateway.captured).size, gateway.captured.length)
  }))

test("a key expires only once its payment is final", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const [paid, open] = [yield* place, yield* place]
    yield* pay(paid, "k")
    const id = yield* payUnanswered(gateway, open, "before charge")
    assert.strictEqual(yield* Idempotency.dropExpired(), 0)
    yield* DatabaseClock.advance("8 days")
    assert.strictEqual(yield* Idempotency.dropExpired({ dryRun: true }), 1)
    assert.strictEqual(yield* Idempotency.dropExpired(), 1)
    assert.strictEqual((yield* pay(open, "k"))._tag, "Unknown")
    yield* recover(id)
    assert.deepStrictEqual(yield* stateOf(open), ["paying", "manual"])
    assert.strictEqual(yield* Idempotency.dropExpired(), 0)
    yield* recover(id, true)
    assert.strictEqual(tagOf(yield* Effect.flip(pay(paid, "k"))), "OrderStateConflict")
  }))
