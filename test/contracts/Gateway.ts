/**
 * The contract of the `Gateway` service as a suite, for every implementation: the HTTP client against the sandbox gateway, and the lab's
 * model.
 */
import { PaymentId } from "../../src/domain/Ids.ts"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { Gateway } from "../../src/application/Gateway.ts"
import { AmountMinor, Currency } from "../../src/domain/Money.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"

let drawn = 0
const newId = () => PaymentId.make(`01890a5d-b1f4-7a53-9f5e-${String(++drawn).padStart(12, "0")}`)
const amount = { amountMinor: AmountMinor.make(2_599), currency: Currency.make("EUR") }
/** Each outcome names the amount that moved. */
const captured = { _tag: "Captured" as const, ...amount }
const refunded = { _tag: "Refunded" as const, ...amount }

export interface GatewayHarness<R> {
  /** How many captures and refunds the gateway has made, by its own books. */
  readonly totals: Effect.Effect<{ readonly captured: number; readonly refunded: number }, never, R>
  /** A person refunds the whole charge at the gateway, without any key of the service. */
  readonly refundThere: (paymentId: PaymentId) => Effect.Effect<void, never, R>
}

export const gatewayContract = <R, E>(
  name: string,
  layer: Layer.Layer<Gateway | R, E>,
  { refundThere, totals }: GatewayHarness<R | Gateway>
) => {
  const test = (promise: string, body: Effect.Effect<void, unknown, Gateway | R>) =>
    it.live(`${name}: ${promise}`, () => Effect.scoped(Effect.provide(body, layer)))
  const charge = (paymentId: PaymentId, method = "pm_ok") =>
    Gateway.use((gateway) => gateway.charge({ paymentId, amount, paymentMethod: PaymentMethod.make(method) }))
  const refund = (paymentId: PaymentId) => Gateway.use((gateway) => gateway.refund({ paymentId, amount }))

  test(
    "a payment is captured once, however many requests, and at once",
    Effect.gen(function* () {
      const id = newId()
      const before = yield* totals
      const outcomes = yield* Effect.all(
        Array.from({ length: 10 }, () => charge(id)),
        { concurrency: "unbounded" }
      )
      for (const outcome of outcomes) assert.deepStrictEqual(outcome, captured)
      assert.strictEqual((yield* totals).captured, before.captured + 1)
    })
  )

  test(
    "a declined payment stays declined, with its reason",
    Effect.gen(function* () {
      const id = newId()
      const first = yield* charge(id, "pm_declined")
      assert.strictEqual(first._tag, "Declined")
      assert.deepStrictEqual(yield* charge(id, "pm_declined"), first)
      const { lookUpCharge } = yield* Gateway
      assert.deepStrictEqual(yield* lookUpCharge(id), Option.some(first))
    })
  )

  test(
    "a charge that was never requested is unknown, and a look-up makes none",
    Effect.gen(function* () {
      const { lookUpCharge, lookUpRefund } = yield* Gateway
      const id = newId()
      assert.isTrue(Option.isNone(yield* lookUpCharge(id)))
      assert.isTrue(Option.isNone(yield* lookUpRefund(id)))
      assert.isTrue(Option.isNone(yield* lookUpCharge(id)))
    })
  )

  test(
    "a charge whose answer is lost is an unknown outcome, is looked up, and is not made again",
    Effect.gen(function* () {
      const { lookUpCharge } = yield* Gateway
      const id = newId()
      const before = yield* totals
      const unknown = yield* Effect.flip(charge(id, "pm_timeout_then_captured"))
      assert.strictEqual(unknown._tag, "OutcomeUnknown")
      assert.deepStrictEqual(yield* lookUpCharge(id), Option.some(captured))
      assert.deepStrictEqual(yield* charge(id, "pm_timeout_then_captured"), captured)
      assert.strictEqual((yield* totals).captured, before.captured + 1)
    })
  )

  test(
    "a payment is refunded once, however often it is requested, and a look-up finds it so",
    Effect.gen(function* () {
      const { lookUpRefund } = yield* Gateway
      const id = newId()
      yield* charge(id)
      const before = yield* totals
      assert.isTrue(Option.isNone(yield* lookUpRefund(id)))
      for (let time = 0; time < 3; time++) assert.deepStrictEqual(yield* refund(id), refunded)
      assert.deepStrictEqual(yield* lookUpRefund(id), Option.some(refunded))
      assert.strictEqual((yield* totals).refunded, before.refunded + 1)
    })
  )

  test(
    "a payment that was not captured is not refunded",
    Effect.gen(function* () {
      const declined = newId()
      yield* charge(declined, "pm_declined")
      for (const id of [declined, newId()]) assert.strictEqual((yield* refund(id))._tag, "Refused")
    })
  )

  test(
    "what a person has refunded at the gateway is not refunded again",
    Effect.gen(function* () {
      const { lookUpRefund } = yield* Gateway
      const id = newId()
      yield* charge(id)
      const before = yield* totals
      yield* refundThere(id)
      assert.strictEqual((yield* refund(id))._tag, "Refused")
      assert.isTrue(Option.isNone(yield* lookUpRefund(id)))
      assert.strictEqual((yield* totals).refunded, before.refunded + 1)
    })
  )
}
