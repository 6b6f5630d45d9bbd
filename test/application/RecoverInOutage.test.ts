/** The recovery of a payment while the database can't write its outcome: no run of it counts. */
import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import * as RecoverPayment from "../../src/application/RecoverPayment.ts"
import * as TaskWorker from "../../src/tasks/TaskWorker.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { steps } from "../tasks/Support.ts"
import { holdAnswer, pay, payUnanswered, place, stateOf, test, timeoutMillis } from "./World.ts"

/** The worker of the recoveries, which have one run and no other. */
const worker = TaskWorker.make([RecoverPayment.handler({ delaysMillis: [1_000], gatewayTimeoutMillis: timeoutMillis })])

const attempts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [task] = yield* sql<{ readonly attempts: number }>`
    SELECT attempts FROM outbox_tasks WHERE task_type = 'payment.recover'`
  return task!.attempts
})

test("an outage between the lease of a payment and its outcome counts no run, however long it lasts", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const sql = yield* SqlClient.SqlClient
    const { runOnce } = yield* worker
    const orderId = yield* place
    yield* payUnanswered(gateway, orderId, "after charge")
    yield* sql.unsafe(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN RAISE EXCEPTION 'no space is left' USING ERRCODE = '53100'; END $$`)
    yield* sql`CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION refuse()`
    // Two leases: runs that begin one, and runs that find it.
    for (let turn = 0; turn < 30; turn++) {
      yield* DatabaseClock.advance("10 seconds")
      assert.strictEqual(yield* runOnce, 1)
      assert.strictEqual(yield* attempts, 0)
    }
    assert.isAtLeast(gateway.callsOf("lookUpCharge").length, 2)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "charging"])
    yield* sql`DROP TRIGGER refuse ON orders`
    yield* DatabaseClock.advance("5 minutes")
    yield* runOnce
    assert.strictEqual(yield* attempts, 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }).pipe(Effect.provide(steps)))

test("the last run of a recovery leaves a payment to the request that is charging it", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const sql = yield* SqlClient.SqlClient
    const { runOnce } = yield* worker
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const paying = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    yield* sql`UPDATE outbox_tasks SET execute_at = clock_now() WHERE task_type = 'payment.recover'`
    const ran = yield* runOnce
    const state = yield* stateOf(orderId)
    yield* release
    yield* Fiber.join(paying)
    assert.deepStrictEqual([ran, state], [1, ["paying", "charging"]])
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }).pipe(Effect.provide(steps)))
