/** Refunds and disputes that are made at the gateway, and amounts that contradict the payment's. */
import { assert } from "@effect/vitest"
import { Effect, Fiber, Metric } from "effect"
import { ReportTooEarly } from "../../src/application/GatewayWebhook.ts"
import { contradictionsTotal } from "../../src/application/PaymentMetrics.ts"
import type { OrderId, PaymentId } from "../../src/domain/Ids.ts"
import { refundKeyOf } from "../../src/domain/Payment.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import { linesOf } from "../support/LogLines.ts"
import * as Webhooks from "../support/Webhooks.ts"
import { silence } from "../support/ScriptedGateway.ts"
import { books, dispute, receive, refundThere, whole } from "./GatewayReports.ts"
import {
  cancel,
  eventsOf,
  pay,
  payUnanswered,
  place,
  recover,
  refund,
  stateOf,
  tagOf,
  tasksOf,
  test,
  webhookSecret
} from "./World.ts"

const paid = Effect.gen(function* () {
  const orderId = yield* place
  const { paymentId } = yield* pay(orderId, "k")
  return { orderId, paymentId }
})

const isRefunded = (orderId: OrderId) =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunded", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid", "OrderRefunded"])
    assert.deepStrictEqual(yield* books, { kept: 0, paid: 0 })
  })

test("a refund of the whole charge at the gateway refunds the payment and its order, once, however often it is reported", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    yield* Effect.all(
      Array.from({ length: 8 }, () => refundThere(paymentId)),
      { concurrency: "unbounded" }
    )
    yield* refundThere(paymentId)
    yield* isRefunded(orderId)
    assert.strictEqual(tagOf(yield* Effect.flip(refund(orderId))), "OrderStateConflict")
    assert.deepStrictEqual(gateway.callsOf("refund"), [])
  }))

test("a refund at the gateway while our own is asked for is one refund: ours is refused there, or not asked for any more", (gateway) =>
  Effect.gen(function* () {
    // Ours was not asked for yet.
    const first = yield* paid
    yield* refund(first.orderId)
    gateway.refundThere(first.paymentId)
    yield* refundThere(first.paymentId)
    yield* isRefunded(first.orderId)
    assert.deepInclude(yield* tasksOf(first.paymentId), ["refund", "completed"])
    yield* recover(first.paymentId)
    assert.deepStrictEqual(gateway.callsOf("refund"), [])

    // Ours is on its way, and comes second. The report comes before the answer.
    const second = yield* paid
    yield* refund(second.orderId)
    gateway.refundThere(second.paymentId)
    gateway.next("after refund", Effect.orDie(refundThere(second.paymentId)) as Effect.Effect<void>)
    yield* recover(second.paymentId)
    yield* isRefunded(second.orderId)

    // The report comes after our refusal: the payment is manual until then.
    const third = yield* paid
    yield* refund(third.orderId)
    gateway.refundThere(third.paymentId)
    yield* recover(third.paymentId)
    assert.deepStrictEqual(yield* stateOf(third.orderId), ["refunding", "manual"])
    yield* refundThere(third.paymentId)
    yield* isRefunded(third.orderId)
    assert.strictEqual(gateway.given.length, 3)
  }))

test("our own refund and a refund at the gateway at the same moment are one", () =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    const asking = yield* Effect.forkChild(Effect.exit(refund(orderId)))
    yield* refundThere(paymentId)
    yield* Fiber.join(asking)
    yield* isRefunded(orderId)
  }))

test("a refund at the gateway of anything but exactly the amount is a person's matter: no event, and one error", () =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    const amounts: ReadonlyArray<object> = [
      { ...whole, amountMinor: 40 },
      { ...whole, amountMinor: 101 },
      { ...whole, currency: "USD" },
      { ...whole, amountMinor: "100" },
      { ...whole, amountMinor: 1e308 },
      {},
      { amountMinor: 100 }
    ]
    for (const [index, amount] of amounts.entries()) {
      const lines = yield* linesOf(refundThere(paymentId, amount))
      assert.strictEqual(lines.length, 1)
      assert.include(
        lines[0]!,
        "of 1.00 EUR, needs a person: the gateway reports a refund that nobody here has asked for"
      )
      assert.match(lines[0]!, index === 0 ? /, of 0\.40 EUR\. It was captured$/ : /\. It was manual$/)
      assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
    }
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    assert.deepStrictEqual(yield* books, { kept: 100, paid: 100 })
    // Ours on top of it could give too much back.
    assert.match(String(yield* Effect.flip(refund(orderId))), /waits for a person/)
    // What the gateway reports later settles it.
    yield* refundThere(paymentId)
    yield* isRefunded(orderId)
  }))

test("a refund under our own key that nobody has asked for has to name the amount, too", () =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    yield* receive({ type: "refund.made", key: refundKeyOf(paymentId) })
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
    const other = yield* paid
    yield* receive({ type: "refund.made", key: refundKeyOf(other.paymentId), ...whole })
    assert.deepStrictEqual(yield* stateOf(other.orderId), ["refunded", "refunded"])
  }))

test("a refund of ours that is reported with another amount is a person's matter", () =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    yield* refund(orderId)
    yield* receive({ type: "refund.made", key: refundKeyOf(paymentId), amountMinor: 99 })
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "manual"])
    // The recovery neither asks again nor settles it.
    yield* recover(paymentId)
    assert.deepStrictEqual(yield* stateOf(orderId), ["refunding", "manual"])
  }))

test("a dispute makes the payment manual without an event, twice or not, and stops a refund under way", (gateway) =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    const lines = yield* linesOf(Effect.andThen(dispute(paymentId, "opened"), dispute(paymentId, "opened")))
    assert.match(
      lines[0]!,
      /needs a person: the gateway reports dispute.opened, of 1.00 EUR, as dp_7: fraud��ulent. It was captured$/
    )
    assert.match(lines[1]!, /It was manual$/)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
    yield* dispute(paymentId, "won")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])

    const other = yield* paid
    yield* refund(other.orderId)
    yield* dispute(other.paymentId, "opened")
    yield* recover(other.paymentId)
    assert.deepStrictEqual(gateway.callsOf("refund"), [])
    assert.deepStrictEqual(yield* stateOf(other.orderId), ["refunding", "manual"])
  }))

test("a dispute of a refunded payment changes nothing and is an error: the money may have left twice", () =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    yield* refundThere(paymentId)
    const lines = yield* linesOf(dispute(paymentId, "lost"))
    assert.match(lines.join(), /^Error .*dispute.lost.*It was refunded$/)
    yield* isRefunded(orderId)
  }))

test("each contradiction is counted, also where the payment can't move any more, and what repeats the books is none", (gateway) =>
  Effect.gen(function* () {
    const counts = Effect.fnUntraced(function* <E, R>(
      report: Effect.Effect<unknown, E, R>,
      more: number,
      status: string
    ) {
      const count = Effect.map(Metric.value(contradictionsTotal), (state) => state.count)
      const before = yield* count
      const lines = yield* linesOf(report)
      assert.strictEqual((yield* count) - before, more, lines.join())
      assert.strictEqual(lines.filter((line) => line.startsWith("Error")).length, more)
      assert.strictEqual((yield* stateOf(orderId))[1], status)
    })
    const { orderId, paymentId } = yield* paid
    yield* counts(receive({ type: "charge.declined", key: paymentId }), 1, "captured")
    yield* refund(orderId)
    yield* recover(paymentId)
    yield* counts(dispute(paymentId, "opened"), 1, "refunded")
    yield* counts(dispute(paymentId, "lost"), 1, "refunded")
    yield* counts(refundThere(paymentId, { ...whole, amountMinor: 40 }), 1, "refunded")
    yield* counts(receive({ type: "charge.captured", key: paymentId, ...whole, currency: "JPY" }), 1, "refunded")
    yield* counts(receive({ type: "dispute.lost", key: 7, charge: paymentId }), 1, "refunded")
    yield* counts(dispute(paymentId, "won"), 0, "refunded")
    yield* counts(refundThere(paymentId), 0, "refunded")
    yield* counts(receive({ type: "refund.made", key: refundKeyOf(paymentId) }), 0, "refunded")
    yield* counts(receive({ type: "charge.captured", key: paymentId, ...whole }), 0, "refunded")
    assert.deepStrictEqual(gateway.given, [paymentId])
    yield* isRefunded(orderId)
  }))

test("an answer that contradicts the report before it is a person's matter, and the first answer stays", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    gateway.amount = { ...whole, amountMinor: 1 }
    const report = Effect.suspend(() => receive({ type: "charge.captured", key: gateway.captured[0], ...whole }))
    gateway.next("after charge", Effect.orDie(report) as Effect.Effect<void>)
    const result = yield* pay(orderId, "k")
    assert.strictEqual(result._tag === "Final" && result.answer.status, 200)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
    assert.deepStrictEqual(yield* pay(orderId, "k"), result)
  }))

test("a refund that is reported before its charge has an outcome here: the charge is looked up first", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    yield* refundThere(id)
    yield* isRefunded(orderId)

    const other = yield* place
    const disputed = yield* payUnanswered(gateway, other, "after charge")
    yield* dispute(disputed, "opened")
    assert.deepStrictEqual(yield* stateOf(other), ["paid", "manual"])

    // Its order was cancelled meanwhile: the capture is to be refunded, and was.
    const third = yield* place
    const unwanted = yield* payUnanswered(gateway, third, "after charge")
    yield* cancel(third)
    yield* refundThere(unwanted)
    assert.deepStrictEqual(yield* stateOf(third), ["cancelled", "refunded"])
  }))

test("without an answer about the charge such a report is refused, and comes again", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "after charge")
    for (const report of [refundThere(id), dispute(id, "opened")]) {
      gateway.next("before lookUpCharge", silence)
      assert.instanceOf(yield* Effect.flip(report), ReportTooEarly)
      assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "charging"])
    }
    gateway.forget()
    assert.instanceOf(yield* Effect.flip(refundThere(id)), ReportTooEarly)
  }))

test("a report about a declined payment is an error, and moves no money", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { paymentId } = yield* pay(orderId, "k", "pm_declined")
    for (const report of [refundThere(paymentId), dispute(paymentId, "lost")])
      assert.match((yield* linesOf(report)).join(), /^Error .*It was declined$/)
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "declined"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "PaymentDeclined"])
  }))

for (const where of ["the answer", "a look-up", "a report"] as const) {
  test(`a capture of another amount in ${where} never pays the order: the payment is a person's matter`, (gateway) =>
    Effect.gen(function* () {
      const orderId = yield* place
      gateway.amount = { amountMinor: 1, currency: "EUR" }
      let id: PaymentId
      if (where === "the answer") {
        const result = yield* pay(orderId, "k")
        assert.deepInclude(result, { _tag: "Unknown", status: "manual" })
        id = result.paymentId
      } else {
        id = yield* payUnanswered(gateway, orderId, "after charge")
        yield* where === "a look-up" ? recover(id) : receive({ type: "charge.captured", key: id, amountMinor: 1 })
      }
      assert.deepStrictEqual(yield* stateOf(orderId), ["paying", "manual"])
      assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced"])
      assert.deepStrictEqual(yield* books, { kept: 0, paid: 0 })
      assert.deepInclude(yield* pay(orderId, "k"), { _tag: "Unknown", status: "manual" })
      // The right amount settles it.
      yield* receive({ type: "charge.captured", key: id, ...whole })
      assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    }))
}

test("a capture of another amount that is reported after the right one is a person's matter", () =>
  Effect.gen(function* () {
    const { orderId, paymentId } = yield* paid
    yield* receive({ type: "charge.captured", key: paymentId, ...whole })
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    yield* receive({ type: "charge.captured", key: paymentId, ...whole, currency: "JPY" })
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
  }))

test("a report about nobody's payment, or one that can't be read, is accepted with one line in the log", () =>
  Effect.gen(function* () {
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`
    for (const [report, line] of [
      [
        { type: "refund.made", key: "re_7" },
        /^Warn the gateway reports refund\.made, as "re_7", of a payment unknown here$/
      ],
      [{ type: "dispute.opened", key: "dp\n7", charge: "nobody's" }, /^Warn .*as "dp�7"/],
      [{ type: "refund.made", key: 7 }, /^Error a report of the gateway, "refund.made", can't be read/],
      [{ type: "payout.made", key: "7" }, /^Info a report of the gateway, "payout.made", is of no kind/]
    ] as const) {
      const lines = yield* linesOf(receive(report))
      assert.strictEqual(lines.length, 1)
      assert.match(lines[0]!, line)
    }
    const { orderId, paymentId } = yield* paid
    const text = `{"type":"refund.made","key":"re_7","charge":"${paymentId}","amountMinor":${deep},"currency":"EUR"}`
    const signature = SignedMessage.sign(webhookSecret, Math.floor(Date.now() / 1000), text)
    yield* Webhooks.receive(signature, text)
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "manual"])
  }))
