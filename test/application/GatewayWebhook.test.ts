import { assert } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { WebhookRefused } from "../../src/application/GatewayWebhook.ts"
import type { PaymentId } from "../../src/domain/Ids.ts"
import { refundKeyOf } from "../../src/domain/Payment.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import { silence } from "../support/ScriptedGateway.ts"
import * as Webhooks from "../support/Webhooks.ts"
import {
  cancel,
  eventsOf,
  holdAnswer,
  pay,
  paymentOf,
  payUnanswered,
  place,
  recover,
  refund,
  stateOf,
  test,
  webhookSecret
} from "./World.ts"

const nowSeconds = () => Math.floor(Date.now() / 1000)

const receive = (report: object, at = nowSeconds()) => {
  const text = JSON.stringify({ id: "1", ...report })
  return Webhooks.receive(SignedMessage.sign(webhookSecret, at, text), text)
}

/** The {@link WebhookRefused} that a report ends with. */
const refusal = (signature: string, text: string) =>
  Effect.map(Effect.flip(Webhooks.receive(signature, text)), (error) => {
    assert.instanceOf(error, WebhookRefused)
    return error
  })

const captured = (id: string) => receive({ type: "charge.captured", key: id })
const refunded = (id: PaymentId) => receive({ type: "refund.made", key: refundKeyOf(id) })

test("a report before the answer settles the payment, and the answer is the same", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer(gateway)
    const paying = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    yield* captured(yield* paymentOf(orderId))
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    yield* release
    const answer = yield* Fiber.join(paying)
    assert.deepStrictEqual(yield* pay(orderId, "k"), answer)
    assert.strictEqual(answer._tag === "Final" ? answer.answer.status : 0, 200)
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
  }))

test("a report after the answer, twice, or many at once changes nothing", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { paymentId } = yield* pay(orderId, "k")
    yield* Effect.all(
      Array.from({ length: 8 }, () => captured(paymentId)),
      { concurrency: "unbounded" }
    )
    yield* receive({ type: "charge.declined", key: paymentId, reason: "late" })
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "captured"])
    assert.deepStrictEqual(yield* eventsOf(orderId), ["OrderPlaced", "OrderPaid"])
  }))

test("reports of a payment that is unknown here, of no payment, and of an unknown kind end well", () =>
  Effect.gen(function* () {
    yield* captured("01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b11")
    yield* captured("nobody's")
    yield* receive({ type: "dispute.opened", key: "1" })
  }))

test("a report can decline the payment, too, and a new key may pay", (gateway) =>
  Effect.gen(function* () {
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "before charge")
    yield* receive({ type: "charge.declined", key: id, reason: "no money" })
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "declined"])
    const told = yield* pay(orderId, "k")
    assert.strictEqual(told._tag === "Final" ? told.answer.status : 0, 402)
    yield* pay(orderId, "other")
    assert.deepStrictEqual(yield* stateOf(orderId), ["paid", "declined", "captured"])
  }))

test("a payment that is manual is settled by its report: charge, refund, and the charge of a cancelled order", (gateway) =>
  Effect.gen(function* () {
    const manual = Effect.gen(function* () {
      const orderId = yield* place
      const id = yield* payUnanswered(gateway, orderId, "before charge")
      gateway.next("before charge", silence)
      yield* recover(id, true)
      assert.strictEqual((yield* stateOf(orderId))[1], "manual")
      return { orderId, id }
    })
    const first = yield* manual
    yield* captured(first.id)
    assert.deepStrictEqual(yield* stateOf(first.orderId), ["paid", "captured"])

    const second = yield* manual
    yield* cancel(second.orderId)
    yield* captured(second.id)
    assert.deepStrictEqual(yield* stateOf(second.orderId), ["cancelled", "refunding"])
    yield* refunded(second.id)
    assert.deepStrictEqual(yield* stateOf(second.orderId), ["cancelled", "refunded"])

    const third = yield* place
    const { paymentId } = yield* pay(third, "k")
    yield* refund(third)
    gateway.next("before refund", silence)
    yield* recover(paymentId, true)
    assert.deepStrictEqual(yield* stateOf(third), ["refunding", "manual"])
    // A payment that is `manual` in its refund does not become paid by a late report of the charge.
    yield* captured(paymentId)
    assert.deepStrictEqual(yield* stateOf(third), ["refunding", "manual"])
    yield* refunded(paymentId)
    assert.deepStrictEqual(yield* stateOf(third), ["refunded", "refunded"])
    assert.deepStrictEqual(yield* eventsOf(third), ["OrderPlaced", "OrderPaid", "OrderRefunded"])
  }))

test("a report is accepted only with a recent signature of its exact bytes by the secret", () =>
  Effect.gen(function* () {
    const text = JSON.stringify({ type: "charge.captured", key: "x" })
    const at = nowSeconds()
    const good = SignedMessage.sign(webhookSecret, at, text)
    const attempts: ReadonlyArray<readonly [string, string]> = [
      ["", text],
      [good.replace(/.$/, (digit) => (digit === "0" ? "1" : "0")), text],
      [good, `${text} `],
      [SignedMessage.sign(webhookSecret, at - 301, text), text],
      [SignedMessage.sign(webhookSecret, at + 400, text), text],
      [SignedMessage.sign(Redacted.make("a-secret-of-somebody-else"), at, text), text]
    ]
    for (const [signature, body] of attempts) {
      assert.isTrue((yield* refusal(signature, body)).isSignature, signature)
    }
    yield* Webhooks.receive(good, text)
    for (const nonsense of ["", "{}", "[", "7"]) {
      const signature = SignedMessage.sign(webhookSecret, at, nonsense)
      assert.isFalse((yield* refusal(signature, nonsense)).isSignature)
    }
  }))

test("a reason that no column, no event and no log line can hold is made presentable, in a report as in an answer", (gateway) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const hostile = `no\u0000 money\ud800\r\n ${"x".repeat(950_000)}`
    const expected = `no\ufffd money\ufffd\ufffd\ufffd ${"x".repeat(500 - 14)}…`
    const orderId = yield* place
    const id = yield* payUnanswered(gateway, orderId, "before charge")
    yield* receive({ type: "charge.declined", key: id, reason: hostile })
    assert.deepStrictEqual(yield* stateOf(orderId), ["pending", "declined"])
    const [row] = yield* sql<{ readonly stored: string; readonly told: string }>`
      SELECT p.decline_reason AS stored, e.data ->> 'reason' AS told
      FROM payments AS p JOIN outbox_events AS e ON e.aggregate_id = p.order_id::text AND e.event_type = 'PaymentDeclined'
      WHERE p.id = ${id}::uuid`
    assert.deepStrictEqual(row, { stored: expected, told: expected })
    const told = yield* pay(orderId, "k")
    assert.include(told._tag === "Final" ? told.answer.body : "", expected)
  }))
