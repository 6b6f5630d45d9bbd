/** Payments whose recovery is dead or was cancelled: each becomes `manual`. */
import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as StrandedPayments from "../../src/application/StrandedPayments.ts"
import { recoveryKeyOf } from "../../src/application/tasks/PaymentRecover.ts"
import type { PaymentId } from "../../src/domain/Ids.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskId } from "../../src/tasks/TaskType.ts"
import { untilBlocked } from "../support/Counters.ts"
import { silence } from "../support/ScriptedGateway.ts"
import * as Ticking from "../support/Ticking.ts"
import { pay, payUnanswered, place, recover, refund, stateOf, tagOf, tasksOf, test } from "./World.ts"

const operator = { actor: "ann", reason: "a test" }

const killRecoveries = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    UPDATE outbox_tasks SET state = 'dead', lease_until = NULL, finished_at = clock_now(), last_error = 'the worker was lost'
    WHERE state <> 'completed'`
)

/** The task that recovers the payment's charge, or its refund. */
const taskOf = Effect.fnUntraced(function* (id: PaymentId, phase: "charge" | "refund") {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly taskId: TaskId }>`
    SELECT task_id::text AS "taskId" FROM outbox_tasks
    WHERE task_type = 'payment.recover' AND idempotency_key = ${recoveryKeyOf(id, phase)}`
  return row!.taskId
})

/** A worker claims the charge's recovery. */
const claimed = Effect.fnUntraced(function* (id: PaymentId) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    UPDATE outbox_tasks SET state = 'processing', attempts = 1, token = 1, lease_until = clock_now() + interval '1 minute'
    WHERE task_id = ${yield* taskOf(id, "charge")}::uuid`
})

/** Cancels the payment's recovery, as an operator does. */
const cancelRecovery = Effect.fnUntraced(function* (id: PaymentId, phase: "charge" | "refund") {
  const tasks = yield* Tasks
  return yield* tasks.cancel(yield* taskOf(id, phase), operator)
})

/** Locks the payment's row in another transaction, until `commit`; `also` then runs in that transaction. */
const holdPayment = Effect.fnUntraced(function* <E>(id: PaymentId, also: Effect.Effect<unknown, E> = Effect.void) {
  const sql = yield* SqlClient.SqlClient
  const locked = yield* Deferred.make<void>()
  const commit = yield* Deferred.make<void>()
  const holder = yield* Effect.forkChild(
    sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`SELECT 1 AS one FROM payments WHERE id = ${id}::uuid FOR UPDATE`
        yield* Deferred.succeed(locked, undefined)
        yield* Deferred.await(commit)
        yield* also
      })
    )
  )
  yield* Deferred.await(locked)
  return { commit: Effect.andThen(Deferred.succeed(commit, undefined), Fiber.join(holder)) }
})

test("a sweep that dies before the payment is manual leaves the dead recovery to the next sweep", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* killRecoveries
    const { commit } = yield* holdPayment(id)
    const sweep = yield* Effect.forkChild(StrandedPayments.sweepOnce)
    yield* untilBlocked("the sweep to reach the payment")
    yield* Fiber.interrupt(sweep)
    yield* commit
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "charging"])
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
  }))

test("the dead recovery of a charge leaves the refund that follows it to the refund's own recovery", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    // The outcome is stored while a worker has the charge's recovery, which therefore is not completed, and dies.
    yield* claimed(id)
    yield* recover(id)
    yield* killRecoveries
    yield* refund(orderId)
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "refunding"])
    assert.deepStrictEqual(yield* tasksOf(id), [
      ["charge", "completed"],
      ["refund", "pending"]
    ])
    yield* killRecoveries
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "manual"])
  }))

test("a dead recovery whose payment is gone keeps no other payment stranded", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [gone, orderId] = [yield* place, yield* place]
    const id = yield* payUnanswered(gateway, gone, "after charge")
    yield* payUnanswered(gateway, orderId, "after charge")
    // Of the two the first to be swept.
    yield* killRecoveries
    yield* sql`
      UPDATE outbox_tasks SET finished_at = finished_at - interval '1 minute',
                              payload = json_build_object('paymentId', overlay(${id}::text PLACING '00000000' FROM 1))
      WHERE task_id = ${yield* taskOf(id, "charge")}::uuid`
    assert.strictEqual(yield* StrandedPayments.sweepOnce, 2)
    assert.deepStrictEqual(yield* stateOf(gone), ["paying", "charging"])
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
  }))

for (const phase of ["charge", "refund"] as const) {
  test(`the transaction that cancels the recovery of a ${phase} makes its payment manual`, (gateway) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const orderId = yield* place
      const id =
        phase === "charge"
          ? yield* payUnanswered(gateway, orderId, "after charge")
          : yield* Effect.andThen(
              pay(orderId, "k"),
              Effect.map(refund(orderId), ({ paymentId }) => paymentId)
            )
      assert.deepInclude(yield* cancelRecovery(id, phase), { state: "cancelled", changed: true })
      assert.deepStrictEqual(yield* stateOf(orderId), [phase === "charge" ? "paying" : "refunding", "manual"])
      assert.deepInclude(yield* tasksOf(id), [phase, "cancelled"])
      assert.deepStrictEqual(
        yield* sql`
          SELECT t.xmin = p.xmin AS "inOneTransaction" FROM outbox_tasks AS t, payments AS p
          WHERE t.task_id = ${yield* taskOf(id, phase)}::uuid AND p.id = ${id}::uuid`,
        [{ inOneTransaction: true }]
      )
      // An operator retries the recovery: it looks the charge up, and charges nothing that it does not find.
      yield* recover(id)
      assert.deepStrictEqual(
        yield* stateOf(orderId),
        phase === "charge" ? ["paid", "captured"] : ["refunding", "manual"]
      )
      assert.deepStrictEqual(gateway.callsOf("charge"), [id])
      assert.deepStrictEqual(gateway.callsOf("refund"), [])
    }))
}

test("a cancellation that is rolled back leaves the payment to its recovery", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* Effect.flip(Transaction.run(Effect.andThen(cancelRecovery(id, "charge"), Effect.fail("not that one"))))
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "charging"])
    assert.deepStrictEqual(yield* tasksOf(id), [["charge", "pending"]])
  }))

test("a recovery that is cancelled while it runs leaves a manual payment, whatever becomes of the run", (gateway) =>
  Effect.gen(function* () {
    for (const answer of ["none", "captured"] as const) {
      const orderId = yield* place
      const id = yield* payUnanswered(gateway, orderId, "after charge")
      const asked = yield* Deferred.make<void>()
      const goOn = yield* Deferred.make<void>()
      gateway.next(
        "before lookUpCharge",
        Deferred.succeed(asked, undefined).pipe(
          Effect.andThen(Deferred.await(goOn)),
          Effect.andThen(answer === "none" ? silence : Effect.void)
        )
      )
      yield* claimed(id)
      const run = yield* Effect.forkChild(Effect.exit(recover(id)))
      yield* Deferred.await(asked)
      assert.deepInclude(yield* cancelRecovery(id, "charge"), { state: "processing", changed: true })
      assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
      yield* Deferred.succeed(goOn, undefined)
      yield* Fiber.join(run)
      assert.deepStrictEqual(yield* stateOf(orderId), answer === "none" ? ["paying", "manual"] : ["paid", "captured"])
    }
  }))

test("cancelling what is left of a charge's recovery does not touch the refund that follows it", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* claimed(id)
    yield* recover(id)
    yield* refund(orderId)
    assert.deepInclude(yield* cancelRecovery(id, "charge"), { state: "processing" })
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "refunding"])
    assert.deepInclude(yield* tasksOf(id), ["refund", "pending"])
  }))

test("a cancellation that waits for the payment does not hold its task: the outcome is stored without a deadlock", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    const taskId = yield* taskOf(id, "charge")
    // A transaction that stores an outcome locks the payment first, and then settles its task.
    const { commit } = yield* holdPayment(
      id,
      sql`SELECT 1 AS one FROM outbox_tasks WHERE task_id = ${taskId}::uuid FOR UPDATE NOWAIT`
    )
    const cancelling = yield* Effect.forkChild(cancelRecovery(id, "charge"))
    yield* untilBlocked("the cancellation to reach the payment")
    yield* commit
    yield* Fiber.join(cancelling)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
  }))

test("the recovery of a settled payment can't be cancelled, and the payment stays as it is", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* recover(id)
    assert.strictEqual(tagOf(yield* Effect.flip(cancelRecovery(id, "charge"))), "TaskNotPossible")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }))

test("the sweep continues: a recovery that dies later is found, too", (gateway) =>
  Effect.gen(function* () {
    const { until } = yield* Ticking.start(Layer.build(StrandedPayments.layer))
    for (let round = 1; round <= 3; round++) {
      const orderId = yield* place
      yield* payUnanswered(gateway, orderId, "after charge")
      yield* killRecoveries
      yield* until(
        `payment ${round} to be manual`,
        "10 seconds",
        Effect.map(stateOf(orderId), ([, payment]) => payment === "manual")
      )
    }
  }))
