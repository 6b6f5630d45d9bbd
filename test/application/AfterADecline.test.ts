/** The gateway says that it declined a charge, and later that it captured it. The money goes back, and no order is paid or refunded by it. */
import { assert } from "@effect/vitest"
import { Effect, Metric } from "effect"
import { contradictionsTotal } from "../../src/application/PaymentMetrics.ts"
import type { PaymentId } from "../../src/domain/Ids.ts"
import { linesOf } from "../support/LogLines.ts"
import type { ScriptedGateway } from "../support/ScriptedGateway.ts"
import { books, dispute, receive, refundThere, whole } from "./GatewayReports.ts"
import { cancel, eventsOf, pay, place, recover, refund, stateOf, tagOf, tasksOf, test } from "./World.ts"

const declined = Effect.gen(function* () {
  const orderId = yield* place
  const { paymentId } = yield* pay(orderId, "k", "pm_declined")
  return { orderId, paymentId }
})

/** The gateway has captured after all, and says so to whoever asks. */
const captureThere = (gateway: ScriptedGateway, id: PaymentId) => {
  gateway.charges.set(id, { _tag: "Captured", ...whole })
  gateway.captured.push(id)
}
const reportCapture = (id: PaymentId, amount: object = whole) =>
  receive({ type: "charge.captured", key: id, ...amount })

test("a capture after a decline is given back, once, and until then the order takes no other payment", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* declined
    captureThere(gateway, paymentId)
    const before = (yield* Metric.value(contradictionsTotal)).count
    const lines = yield* linesOf(
      Effect.all(
        Array.from({ length: 8 }, () => reportCapture(paymentId)),
        { concurrency: "unbounded" }
      )
    )
    assert.strictEqual(lines.length, 1)
    assert.match(lines[0]!, /^Error .*of 1\.00 EUR, was captured after the gateway had declined it.*given back$/)
    assert.strictEqual((yield* Metric.value(contradictionsTotal)).count - before, 1)
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "refunding"])
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "k2"))), "PaymentOpen")
    assert.deepInclude(yield* tasksOf(paymentId), ["refund", "pending"])

    yield* recover(paymentId)
    yield* reportCapture(paymentId)
    // Late and again, the report of the decline is no contradiction any more.
    assert.deepStrictEqual(yield* linesOf(receive({ type: "charge.declined", key: paymentId })), [])
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined"])
    assert.deepStrictEqual(gateway.given, [paymentId])
    assert.deepStrictEqual(yield* books, { kept: 0, paid: 0 })
    assert.deepInclude(yield* pay(orderId, "k", "pm_declined"), { _tag: "Final", paymentId })

    yield* pay(orderId, "k2")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "refunded", "captured"])
    assert.deepStrictEqual(yield* books, { kept: 100, paid: 100 })
  }))

test("a capture after a decline is given back where the order was paid meanwhile, and that payment stays", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* declined
    yield* pay(orderId, "k2")
    captureThere(gateway, paymentId)
    yield* reportCapture(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "refunding", "captured"])
    assert.deepStrictEqual(yield* books, { kept: 200, paid: 100 })
    // The order's own refund is of the other payment, and moves that one alone.
    const { paymentId: second } = yield* refund(orderId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "refunding", "refunding"])
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "refunded", "refunding"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined", "OrderPaid"])
    assert.deepStrictEqual(yield* books, { kept: 100, paid: 100 })
    yield* recover(second)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunded", "refunded", "refunded"])
    assert.deepStrictEqual(gateway.given, [paymentId, second])
  }))

test("a capture after a decline is given back where the order was cancelled meanwhile", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* declined
    yield* cancel(orderId)
    captureThere(gateway, paymentId)
    yield* reportCapture(paymentId)
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["cancelled", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined", "OrderCancelled"])
  }))

test("a report of the decline that overtakes the answer of the capture: the answer is the decline, and the money goes back", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const report = Effect.suspend(() => receive({ type: "charge.declined", key: gateway.callsOf("charge")[0] }))
    gateway.next("after charge", Effect.orDie(report) as Effect.Effect<void>)
    const result = yield* pay(orderId, "k")
    assert.strictEqual(result._tag === "Final" && result.answer.status, 402)
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "refunding"])
  }))

test("a capture of another amount after a decline is a person's matter, and the right amount is given back", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* declined
    for (const was of ["declined", "manual"]) {
      const lines = yield* linesOf(reportCapture(paymentId, { ...whole, amountMinor: 99 }))
      assert.match(lines.join(), new RegExp(`^Error .*needs a person.*0\\.99 EUR.*It was ${was}$`))
      assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "manual"])
    }
    assert.strictEqual(tagOf(yield* Effect.flip(pay(orderId, "k2"))), "PaymentOpen")
    yield* receive({ type: "charge.declined", key: paymentId })
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "manual"])
    captureThere(gateway, paymentId)
    yield* reportCapture(paymentId)
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined"])
  }))

test("a refund or a dispute of a declined payment: the charge is looked up, and a capture counts", (gateway) =>
  Effect.gen(function* () {
    const first = yield* declined
    yield* pay(first.orderId, "k2")
    captureThere(gateway, first.paymentId)
    yield* refundThere(first.paymentId)
    // The order was paid by the other payment, and stays so.
    assert.deepStrictEqual(yield* stateOf(first.orderId), ["paid", "refunded", "captured"])
    assert.deepStrictEqual(yield* books, { kept: 100, paid: 100 })

    const second = yield* declined
    captureThere(gateway, second.paymentId)
    yield* dispute(second.paymentId, "opened")
    assert.deepStrictEqual(yield* stateOf(second.orderId), ["pending", "manual"])
    assert.deepStrictEqual(gateway.callsOf("refund"), [])
  }))
