/** An operator settles payments that wait for a person: what the gateway has done counts, and its silence decides nothing. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Outcome } from "../../src/application/GatewayFindings.ts"
import { SettlePayment } from "../../src/application/SettlePayment.ts"
import { type OrderId, PaymentId } from "../../src/domain/Ids.ts"
import { type ScriptedGateway, silence } from "../support/ScriptedGateway.ts"
import { books, dispute, receive, refundThere, whole } from "./GatewayReports.ts"
import { cancel, eventsOf, pay, place, recover, refund, stateOf, tagOf, tasksOf, test } from "./World.ts"

const operator = { actor: "ann", reason: "seen in the dashboard" }

const settle = (id: PaymentId, as?: Outcome, withoutGateway = false) =>
  SettlePayment.use((service) => service.settle(id, { withoutGateway, ...(as === undefined ? {} : { as }) }, operator))
const refusalOf = (...args: Parameters<typeof settle>) => Effect.map(Effect.flip(settle(...args)), String)
const check = (id: PaymentId) => SettlePayment.use((service) => service.check(id))

/** Entries of the audit about payments. */
const audit = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{
    readonly actor: string
    readonly reason: string
    readonly subjectId: string
    readonly before: { readonly status: string }
    readonly after: { readonly status: string; readonly as: string | null; readonly gateway: string }
  }>`SELECT actor, reason, subject_id AS "subjectId", before, after FROM operator_audit WHERE subject = 'payment' ORDER BY audit_id`
})

/** A payment whose charge got no answer, and whose recovery has given up. */
const lostCharge = Effect.fnUntraced(function* (
  gateway: ScriptedGateway,
  when: "before charge" | "after charge",
  { isCancelled = false, method = "pm_ok" } = {}
) {
  const orderId = yield* place
  gateway.next(when, silence)
  const { paymentId } = yield* pay(orderId, "k", method)
  if (isCancelled) yield* cancel(orderId)
  gateway.next("before lookUpCharge", silence)
  yield* recover(paymentId, true)
  assert.include(yield* stateOf(orderId), "manual")
  return { orderId, paymentId }
})

const paid = Effect.gen(function* () {
  const orderId = yield* place
  const { paymentId } = yield* pay(orderId, "k")
  return { orderId, paymentId }
})

/** A payment whose refund got no answer, and whose recovery has given up. */
const lostRefund = Effect.fnUntraced(function* (gateway: ScriptedGateway, when: "before refund" | "after refund") {
  const { orderId, paymentId } = yield* paid
  yield* refund(orderId)
  gateway.next(when, silence)
  yield* recover(paymentId, true)
  assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "manual"])
  return { orderId, paymentId }
})

const disputed = Effect.gen(function* () {
  const { orderId, paymentId } = yield* paid
  yield* dispute(paymentId, "opened")
  assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
  return { orderId, paymentId }
})

/** No statement of these tests may move money, and the sums agree. */
const addsUp = (gateway: ScriptedGateway, orderId: OrderId, calls: number) =>
  Effect.gen(function* () {
    const { kept, paid } = yield* books
    assert.strictEqual(kept, paid, `order ${orderId}`)
    assert.strictEqual(gateway.callsOf("charge").length + gateway.callsOf("refund").length, calls)
  })

test("of a payment that was charged twice one charge goes back in two parts, and the order stays paid", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { paymentId } = yield* pay(orderId, "k")
    for (const amountMinor of [60, 40]) {
      yield* refundThere(paymentId, { amountMinor, currency: "EUR" })
      assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
    }
    yield* settle(paymentId, "captured")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    assert.deepStrictEqual(yield* books, { kept: 100, paid: 100 })
  }))

test("a capture that the gateway knows pays the order, once, however many operators settle it at once", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge")
    const all = yield* Effect.all(
      Array.from({ length: 8 }, () => settle(paymentId)),
      { concurrency: "unbounded" }
    )
    assert.strictEqual(all.filter(({ changed }) => changed).length, 1)
    const [settled] = all
    assert.deepInclude(settled!.payment, { status: "captured", capturedMinor: 100 })
    assert.strictEqual(settled!.orderStatus, "paid")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    assert.deepInclude(yield* tasksOf(paymentId), ["charge", "completed"])
    const [entry, ...more] = yield* audit
    assert.deepStrictEqual(more, [])
    assert.deepInclude(entry, { ...operator, subjectId: paymentId })
    assert.deepInclude(entry!.before, { status: "manual" })
    assert.deepInclude(entry!.after, { status: "captured", as: null, gateway: "the gateway has captured 1.00 EUR" })
    // The client's key has its final answer.
    assert.deepInclude(yield* pay(orderId, "k"), { _tag: "Final" })
    assert.isFalse((yield* settle(paymentId, "captured")).changed)
    yield* addsUp(gateway, orderId, 1)
  }))

test("a capture of an order that was cancelled meanwhile is given back", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge", { isCancelled: true })
    assert.strictEqual((yield* settle(paymentId)).payment.status, "refunding")
    assert.isFalse((yield* settle(paymentId)).changed)
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["cancelled", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderCancelled"])
    assert.deepStrictEqual(gateway.given, [paymentId])
    yield* addsUp(gateway, orderId, 2)
  }))

test("a decline that the gateway knows is a decline, with its reason, and the order takes another payment", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge", { method: "pm_declined" })
    assert.match(yield* refusalOf(paymentId, "captured"), /can't be settled as captured: the gateway has declined it/)
    assert.strictEqual((yield* settle(paymentId)).payment.status, "declined")
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined"])
    const again = yield* pay(orderId, "k", "pm_declined")
    assert.include(JSON.stringify(again), "the payment was declined: insufficient funds")
    yield* pay(orderId, "k2")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "declined", "captured"])
    assert.match(yield* refusalOf(paymentId, "captured"), /is declined already/)
    yield* addsUp(gateway, orderId, 2)
  }))

test("nothing at the gateway decides nothing: the operator has to say it, and a capture that comes later is given back", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "before charge")
    assert.match(yield* refusalOf(paymentId), /knows of no charge\. .*captured or declined/)
    assert.match(yield* refusalOf(paymentId, "refunded"), /may become captured or declined/)
    assert.deepStrictEqual(yield* audit, [])
    assert.strictEqual((yield* settle(paymentId, "declined")).payment.status, "declined")
    assert.isFalse((yield* settle(paymentId, "declined")).changed)
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "declined"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined"])
    assert.strictEqual((yield* audit).length, 1)

    // The charge was on its way after all.
    gateway.charges.set(paymentId, { _tag: "Captured", ...whole })
    gateway.captured.push(paymentId)
    yield* receive({ type: "charge.captured", key: paymentId, ...whole })
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "refunded"])
    yield* addsUp(gateway, orderId, 2)
  }))

test("a capture that the gateway has forgotten pays the order by the operator's word", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge")
    gateway.forget()
    yield* settle(paymentId, "captured")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    assert.deepInclude((yield* audit)[0]!.after, { as: "captured", gateway: "the gateway knows of no charge" })
    yield* addsUp(gateway, orderId, 1)
  }))

test("an operator's word against what the gateway has done is refused", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge")
    for (const withoutGateway of [false, true]) {
      assert.match(
        yield* refusalOf(paymentId, "declined", withoutGateway),
        /can't be settled as declined: the gateway has captured 1\.00 EUR/
      )
    }
    const other = yield* lostRefund(gateway, "after refund")
    assert.match(yield* refusalOf(other.paymentId, "captured"), /the gateway has refunded 1\.00 EUR/)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
    assert.deepStrictEqual(yield* stateOf(other.orderId), ["refunding", "manual"])
    assert.deepStrictEqual(yield* audit, [])
  }))

test("without an answer of the gateway nothing is settled, unless the operator says that, too", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge")
    for (const [as, withoutGateway] of [
      [undefined, false],
      ["declined", false],
      [undefined, true]
    ] as const) {
      gateway.next("before lookUpCharge", silence)
      assert.match(yield* refusalOf(paymentId, as, withoutGateway), /can't be settled now: the gateway does not tell/)
    }
    gateway.next("before lookUpCharge", silence)
    yield* settle(paymentId, "captured", true)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    yield* addsUp(gateway, orderId, 1)
  }))

test("a capture of another amount never pays the order: it is given back at the gateway, and settled as declined", (gateway) =>
  Effect.gen(function* () {
    gateway.amount = { amountMinor: 1, currency: "EUR" }
    const { orderId, paymentId } = yield* lostCharge(gateway, "after charge")
    assert.match(yield* refusalOf(paymentId), /has captured 0\.01 EUR, not 1\.00 EUR/)
    assert.match(yield* refusalOf(paymentId, "captured"), /can't be settled as captured/)
    yield* settle(paymentId, "declined")
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "declined"])
    yield* addsUp(gateway, orderId, 1)
  }))

test("a refund that the gateway knows refunds the order; one that it does not know is settled by the operator's word", (gateway) =>
  Effect.gen(function* () {
    const known = yield* lostRefund(gateway, "after refund")
    assert.strictEqual((yield* settle(known.paymentId)).orderStatus, "refunded")
    const unknown = yield* lostRefund(gateway, "before refund")
    assert.match(yield* refusalOf(unknown.paymentId), /knows of no refund of ours/)
    // The customer was promised the money.
    assert.match(yield* refusalOf(unknown.paymentId, "captured"), /it may become refunded$/)
    yield* settle(unknown.paymentId, "refunded")
    for (const { orderId, paymentId } of [known, unknown]) {
      assert.deepStrictEqual(yield* stateOf(orderId), ["refunded", "refunded"])
      assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid", "OrderRefunded"])
      assert.isFalse((yield* settle(paymentId)).changed)
      yield* addsUp(gateway, orderId, 4)
    }
  }))

test("a dispute ends by the operator's word: the money stays, and can be refunded later, or it is gone", (gateway) =>
  Effect.gen(function* () {
    const won = yield* disputed
    assert.match(yield* refusalOf(won.paymentId), /captured or refunded/)
    assert.match(yield* refusalOf(won.paymentId, "declined"), /may become captured or refunded/)
    yield* settle(won.paymentId, "captured")
    assert.deepStrictEqual(yield* stateOf(won.orderId), ["paid", "captured"])
    assert.deepStrictEqual(yield* eventsOf(won.orderId), ["OrderPlaced", "OrderPaid"])
    assert.isFalse((yield* settle(won.paymentId, "captured")).changed)
    yield* refund(won.orderId)
    yield* recover(won.paymentId)
    assert.deepStrictEqual(yield* stateOf(won.orderId), ["refunded", "refunded"])

    const lost = yield* disputed
    yield* settle(lost.paymentId, "refunded")
    assert.deepStrictEqual(yield* stateOf(lost.orderId), ["refunded", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(lost.orderId), ["OrderPlaced", "OrderPaid", "OrderRefunded"])
    assert.strictEqual((yield* audit).length, 2)
    yield* addsUp(gateway, lost.orderId, 3)
  }))

test("a contradiction after a decline ends as declined without a second event, or is given back", (gateway) =>
  Effect.gen(function* () {
    for (const amountMinor of [1, 100]) {
      const orderId = yield* place
      const { paymentId } = yield* pay(orderId, "k", "pm_declined")
      yield* receive({ type: "charge.captured", key: paymentId, amountMinor: 1, currency: "EUR" })
      assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "manual"])
      gateway.charges.set(paymentId, { _tag: "Captured", amountMinor, currency: "EUR" })
      gateway.captured.push(paymentId)
      yield* amountMinor === 1 ? settle(paymentId, "declined") : settle(paymentId)
      if (amountMinor === 100) yield* recover(paymentId)
      assert.deepStrictEqual(yield* stateOf(orderId), ["pending", amountMinor === 1 ? "declined" : "refunded"])
      assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined"])
      const { kept, paid } = yield* books
      assert.strictEqual(kept, paid)
    }
  }))

test("a report that settles the payment while the gateway is asked is the outcome", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* lostCharge(gateway, "before charge")
    const report = Effect.orDie(receive({ type: "charge.captured", key: paymentId, ...whole }))
    gateway.next("after lookUpCharge", report as Effect.Effect<void>)
    assert.match(yield* refusalOf(paymentId, "declined"), /is captured already/)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])

    // It is disputed at the same moment, and waits for another word.
    const second = yield* lostCharge(gateway, "before charge")
    const reports = Effect.andThen(
      receive({ type: "charge.captured", key: second.paymentId, ...whole }),
      dispute(second.paymentId, "opened")
    )
    gateway.next("after lookUpCharge", Effect.orDie(reports) as Effect.Effect<void>)
    assert.match(yield* refusalOf(second.paymentId, "captured"), /has changed while the gateway was asked/)
    assert.deepStrictEqual(yield* stateOf(second.orderId), ["paid", "manual"])
    assert.deepStrictEqual(yield* audit, [])
  }))

test("a payment that is under way is left to its recovery, and an unknown one is named", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    gateway.next("before charge", silence)
    const { paymentId } = yield* pay(orderId, "k")
    assert.match(yield* refusalOf(paymentId, "declined"), /is charging: its recovery looks for the outcome/)
    assert.deepStrictEqual(gateway.callsOf("lookUpCharge"), [])
    const unknown = PaymentId.make("0192a000-0000-7000-8000-000000000000")
    assert.strictEqual(tagOf(yield* Effect.flip(settle(unknown))), "PaymentNotFound")
    assert.strictEqual(tagOf(yield* Effect.flip(check(unknown))), "PaymentNotFound")
  }))

test("check compares with the gateway in words, and changes nothing", (gateway) =>
  Effect.gen(function* () {
    const good = yield* paid
    assert.deepInclude(yield* check(good.paymentId), { verdict: "agree", mayBecome: [] })
    const lost = yield* lostCharge(gateway, "after charge")
    const found = yield* check(lost.paymentId)
    assert.deepInclude(found, { verdict: "differ", mayBecome: ["captured"] })
    assert.strictEqual(found.charge.words, "the gateway has captured 1.00 EUR")
    assert.deepInclude(yield* check((yield* disputed).paymentId), {
      verdict: "unknown",
      mayBecome: ["captured", "refunded"]
    })
    gateway.next("before lookUpRefund", silence)
    assert.deepInclude(yield* check(good.paymentId), { verdict: "unknown" })
    gateway.charges.set(good.paymentId, { _tag: "Declined", reason: "no" })
    assert.deepInclude(yield* check(good.paymentId), { verdict: "differ" })
    gateway.forget()
    assert.deepInclude(yield* check(good.paymentId), { verdict: "unknown" })
    assert.deepInclude(yield* check(lost.paymentId), { verdict: "unknown", mayBecome: ["captured", "declined"] })
    assert.deepStrictEqual(yield* stateOf(lost.orderId), ["paying", "manual"])
    assert.deepStrictEqual(yield* audit, [])
  }))
