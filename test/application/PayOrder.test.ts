import { assert } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Option, Semaphore } from "effect"
import { Orders } from "../../src/application/Orders.ts"
import { Payments } from "../../src/application/Payments.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { Faults } from "../../src/platform/Faults.ts"
import * as Turn from "../../src/platform/Turn.ts"
import { eventually } from "../support/Counters.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { silence } from "../support/ScriptedGateway.ts"
import {
  cancel,
  eventsOf,
  holdAnswer,
  movable,
  pay,
  paymentOf,
  place,
  recover,
  stateOf,
  tagOf,
  tasksOf,
  test,
  untilStatus
} from "./World.ts"

test("a hundred equal requests at once ask the gateway once", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const first = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    const others = yield* Effect.forEach(Array.from({ length: 99 }), () => Effect.flip(pay(orderId, "k")), {
      concurrency: "unbounded"
    })
    for (const error of others) assert.strictEqual(tagOf(error), "PaymentInProgress")
    yield* release
    const result = yield* Fiber.join(first)
    assert.deepStrictEqual(yield* pay(orderId, "k"), result)
    assert.strictEqual(gateway.captured.length, 1)
    assert.strictEqual(gateway.calls.length, 1)
  }))

test("the stored answer is the order as readers see it", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const result = yield* pay(orderId, "k")
    const view = yield* Orders.use((orders) => orders.get(orderId))
    assert.strictEqual(result._tag === "Final" ? result.answer.body : "", JSON.stringify(view))
    assert.deepInclude(view, { status: "paid", version: 2 })
  }))

test("another key finds the payment open, and later the order paid", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const first = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "other"))), "PaymentOpen")
    yield* release
    yield* Fiber.join(first)
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "third"))), "OrderStateConflict")
    assert.strictEqual(gateway.calls.length, 1)
  }))

test("a key of a refused request stays free", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const first = yield* Effect.forkChild(pay(orderId, "k", "pm_declined"))
    yield* asked
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "other"))), "PaymentOpen")
    yield* release
    yield* Fiber.join(first)
    const paid = yield* pay(orderId, "other")
    assert.strictEqual(paid._tag === "Final" ? paid.answer.status : 0, 200)
  }))

test("intent and recovery commit together, and the outcome settles the recovery with itself", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const first = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    const id = yield* paymentOf(orderId)
    assert.deepStrictEqual(yield* tasksOf(id), [["charge", "pending"]])
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "charging"])
    yield* release
    yield* Fiber.join(first)
    assert.deepStrictEqual(yield* tasksOf(id), [["charge", "completed"]])
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }))

test("after a 202 the same key hears 202 and charges nothing, until the outcome is final; then that for good", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    gateway.next("after charge", silence)
    const unknown = yield* pay(orderId, "k")
    assert.strictEqual(unknown._tag, "Unknown")
    assert.strictEqual((yield* pay(orderId, "k"))._tag, "Unknown")
    assert.strictEqual(gateway.callsOf("charge").length, 1)
    yield* recover(unknown.paymentId)
    const final = yield* pay(orderId, "k")
    assert.strictEqual(final._tag === "Final" ? final.answer.status : 0, 200)
    assert.deepStrictEqual(yield* pay(orderId, "k"), final)
    assert.deepStrictEqual(gateway.captured, [unknown.paymentId])
  }))

for (const point of ["pay.after-intent", "pay.after-charge", "pay.before-commit"] as const) {
  test(`a request that dies ${point} is resumed by the next with its key, once its lease is over`, (gateway) =>
    Effect.gen(function* () {
      yield* DatabaseClock.install
      const orderId = yield* place
      yield* FaultInjection.FaultControl.use(({ set }) => set(point, { action: "fail", times: 1, delayMillis: 0 }))
      yield* Effect.exit(pay(orderId, "k"))
      assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "k"))), "PaymentInProgress")
      yield* DatabaseClock.advance("5 minutes")
      const final = yield* pay(orderId, "k")
      assert.strictEqual(final._tag === "Final" ? final.answer.status : 0, 200)
      assert.strictEqual(gateway.captured.length, 1)
      assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    }))
}

test("a request that died is not resumed once the gateway may have forgotten its key: it hears 202, and nothing is charged", (gateway) =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const orderId = yield* place
    yield* FaultInjection.FaultControl.use(({ set }) =>
      set("pay.after-charge", { action: "fail", times: 1, delayMillis: 0 })
    )
    yield* Effect.exit(pay(orderId, "k"))
    yield* DatabaseClock.advance("13 hours")
    gateway.forget()
    assert.strictEqual((yield* pay(orderId, "k"))._tag, "Unknown")
    assert.strictEqual(gateway.captured.length, 1)
  }))

test("a request that was frozen behind its intent for half of the key's retention charges nothing when it wakes up", (gateway) =>
  Effect.gen(function* () {
    const { freeze, moved } = yield* movable
    const orderId = yield* place
    const faults = yield* Faults
    const frozen = Layer.fresh(PayOrder.layer).pipe(
      Layer.provide(
        Layer.succeed(Faults, {
          ...faults,
          at: (point) => (point === "pay.after-intent" ? freeze(12 * 3_600_000) : Effect.void)
        })
      )
    )
    const result = yield* pay(orderId, "k").pipe(Effect.provide(frozen), Effect.provideService(Clock.Clock, moved))
    assert.strictEqual(result._tag, "Unknown")
    assert.deepStrictEqual(gateway.calls, [])
    // The recovery is due by the database's clock, on which no time has passed.
    yield* recover(yield* paymentOf(orderId))
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
  }))

test("a payment that waits for the gateway leaves its turn to other requests", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const turns = Semaphore.makeUnsafe(1)
    const { asked, release } = yield* holdAnswer(gateway)
    const paying = yield* Effect.forkChild(Turn.take(turns, pay(orderId, "k")))
    yield* asked
    const free = Effect.map(turns.withPermitsIfAvailable(1)(Effect.void), Option.isSome)
    yield* Effect.ensuring(eventually("the turn", free), release)
    assert.strictEqual((yield* Fiber.join(paying))._tag, "Final")
    yield* Turn.take(turns, Effect.void)
  }))

test("a client that hangs up does not stop its payment, which is settled", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const client = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    yield* Fiber.interrupt(client)
    yield* release
    yield* untilStatus(orderId, "paid")
    assert.strictEqual(gateway.captured.length, 1)
  }))

test("the payment of an order that is cancelled meanwhile: its key is answered 409 for good, and a decline stays a decline", (gateway) =>
  Effect.gen(function* () {
    for (const method of ["pm_ok", "pm_declined"]) {
      const orderId = yield* place
      const { asked, release } = yield* holdAnswer(gateway)
      const client = yield* Effect.forkChild(Effect.result(pay(orderId, "k", method)))
      yield* asked
      assert.isDefined((yield* cancel(orderId)).inFlight)
      yield* release
      const first = yield* Fiber.join(client)
      const again = yield* Effect.result(pay(orderId, "k", method))
      assert.deepStrictEqual(String(again), String(first))
      assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderCancelled"])
      assert.deepStrictEqual(yield* stateOf(orderId), ["cancelled", method === "pm_ok" ? "refunding" : "declined"])
    }
  }))

test("a missing payment can't be read", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const missing = yield* Effect.flip(Payments.use((payments) => payments.get(orderId as never)))
    assert.strictEqual(missing._tag, "PaymentNotFound")
  }))
