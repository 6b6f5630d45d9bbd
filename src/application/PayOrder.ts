/**
 * Paying an order, in three phases that each can be resumed:
 *
 * 1. intent: one transaction. The key is claimed and the payment recorded as `charging`, before any money moves.
 * 2. charge: outside any transaction, in a fiber of the service: a client that hangs up changes nothing. The gateway's
 *    idempotency key is the payment's id, so charging again after a crash can't charge twice.
 * 3. outcome: one transaction. Order, payment, event and the stored answer, all or none.
 *
 * A process that dies between two phases leaves a `charging` payment; the next request with the same key takes it from there.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Fiber, FiberSet, Layer, Result, Schema } from "effect"
import { declinePayment, markPaid, type OrderId, OrderStateConflict } from "../domain/Order.ts"
import { PaymentId, type PaymentMethod } from "../domain/Payment.ts"
import { Transaction } from "../platform/database/Transaction.ts"
import { Faults } from "../platform/Faults.ts"
import { RandomUuid } from "../platform/RandomUuid.ts"
import { type ChargeOutcome, Gateway, GatewaySettings } from "./Gateway.ts"
import { type FinalAnswer, Idempotency, type KeyedRequest, type KeyReused } from "./Idempotency.ts"
import { type OrderNotFound, Orders, OrderView } from "./Orders.ts"
import { type OpenPayment, PaymentOpen, Payments } from "./Payments.ts"

/** Another request with the same key is at work on this payment. */
export class PaymentInProgress extends Schema.TaggedError<PaymentInProgress>()("PaymentInProgress", {
  paymentId: PaymentId
}) {
  override get message() {
    return `a request with the same Idempotency-Key is still being processed (payment ${this.paymentId})`
  }
}

/** What a request to pay comes to: a final answer, or a payment whose outcome the gateway has not told yet. */
export type PayResult =
  | { readonly _tag: "Final"; readonly paymentId: PaymentId; readonly answer: FinalAnswer }
  | { readonly _tag: "Unknown"; readonly paymentId: PaymentId; readonly reason: string }

/** The body of a decline: a problem (RFC 9457) with the payment and the gateway's reason. */
const DeclineBody = Schema.fromJsonString(
  Schema.Struct({
    type: Schema.String,
    title: Schema.String,
    status: Schema.Int,
    detail: Schema.String,
    paymentId: PaymentId,
    reason: Schema.String
  })
)
const encodeDecline = Schema.encodeEffect(DeclineBody)
const encodeView = Schema.encodeEffect(Schema.fromJsonString(OrderView))

/**
 * How much longer than the gateway's timeout an attempt may count on being alone: its last transaction has to fit in. After a
 * crash this is how long the same key hears 409 before it may resume.
 */
const leaseSlackMillis = 3_000

export class PayOrder extends Context.Service<
  PayOrder,
  {
    readonly pay: (
      orderId: OrderId,
      paymentMethod: PaymentMethod,
      request: KeyedRequest
    ) => Effect.Effect<PayResult, KeyReused | OrderNotFound | OrderStateConflict | PaymentInProgress | PaymentOpen>
  }
>()("paid-once/application/PayOrder") {
  static readonly layer: Layer.Layer<
    PayOrder,
    never,
    Orders | Payments | Idempotency | Gateway | GatewaySettings | PgClient.PgClient
  > = Layer.effect(
    PayOrder,
    Effect.gen(function* () {
      const orders = yield* Orders
      const payments = yield* Payments
      const idempotency = yield* Idempotency
      const gateway = yield* Gateway
      const faults = yield* Faults
      const database = yield* PgClient.PgClient
      const drawUuid = yield* RandomUuid
      const leaseMillis = (yield* GatewaySettings).timeoutMillis + leaseSlackMillis
      /** Charges under way. Closing the service waits for them, for each is bounded by the gateway's timeout. */
      const charges = yield* FiberSet.make<PayResult>()
      yield* Effect.addFinalizer(() => FiberSet.awaitEmpty(charges))

      /** Phase 1. Returns the payment to be charged, or the answer that the key has already. */
      const begin = Effect.fn("PayOrder.intent")(function* (
        orderId: OrderId,
        paymentMethod: PaymentMethod,
        request: KeyedRequest
      ) {
        const { sql } = yield* Transaction
        const [row] = yield* Effect.orDie(
          sql<{ readonly id: string }>`SELECT uuid_v7(clock_now(), ${drawUuid()}::uuid) AS id`
        )
        const fresh = PaymentId.make(row!.id)
        const claim = yield* idempotency.claim(request, fresh)
        if (claim._tag === "Answered") {
          return { _tag: "Final" as const, paymentId: PaymentId.make(claim.subjectId), answer: claim.answer }
        }
        if (claim._tag === "Begun") {
          const payment = yield* Effect.orDie(payments.lock(PaymentId.make(claim.subjectId)))
          if (payment.leased) return yield* new PaymentInProgress({ paymentId: payment.id })
          yield* payments.lease(payment.id, leaseMillis)
          return { _tag: "Charge" as const, payment }
        }
        const order = yield* orders.lock(orderId)
        if (order.status !== "pending") {
          return yield* new OrderStateConflict({ orderId, status: order.status, wanted: "paid" })
        }
        yield* payments.open(fresh, order, paymentMethod, leaseMillis)
        return { _tag: "Charge" as const, payment: yield* Effect.orDie(payments.lock(fresh)) }
      })

      /** Phase 3, once the gateway has spoken. Whoever comes second finds the answer of the first. */
      const finish = Effect.fn("PayOrder.outcome")(function* (payment: OpenPayment, outcome: ChargeOutcome) {
        const order = yield* Effect.orDie(orders.lock(payment.orderId))
        const current = yield* Effect.orDie(payments.lock(payment.id))
        if (current.status !== "charging") {
          const answer = yield* idempotency.answerOf(payment.id)
          return (
            answer ?? (yield* Effect.die(new Error(`payment ${payment.id} is ${current.status} and has no answer`)))
          )
        }
        const change =
          outcome._tag === "Captured" ? markPaid(order, payment.id) : declinePayment(order, payment.id, outcome.reason)
        // The order was pending when the payment was opened, and an open payment keeps every other change away.
        yield* Effect.orDie(Effect.flatMap(Effect.fromResult(change), (made) => orders.save(made)))
        yield* payments.settle(payment.id, outcome)
        const answer = yield* Effect.orDie(answerTo(payment, outcome))
        yield* idempotency.answer(payment.id, answer)
        yield* faults.at("pay.before-commit")
        return answer
      })

      const answerTo = (payment: OpenPayment, outcome: ChargeOutcome) =>
        outcome._tag === "Captured"
          ? Effect.map(
              Effect.flatMap(orders.get(payment.orderId), (order) => encodeView(order)),
              (body): FinalAnswer => ({ status: 200, body })
            )
          : Effect.map(
              encodeDecline({
                type: "about:blank",
                title: "Payment Required",
                status: 402,
                detail: `the payment was declined: ${outcome.reason}`,
                paymentId: payment.id,
                reason: outcome.reason
              }),
              (body): FinalAnswer => ({ status: 402, body })
            )

      /** Phases 2 and 3. */
      const charge = Effect.fn("PayOrder.charge")(function* (payment: OpenPayment) {
        yield* faults.at("pay.after-intent")
        const outcome = yield* Effect.result(
          gateway.charge({
            paymentId: payment.id,
            amount: { amountMinor: payment.amountMinor, currency: payment.currency },
            paymentMethod: payment.paymentMethod
          })
        )
        yield* faults.at("pay.after-charge")
        if (Result.isFailure(outcome)) {
          // Given back at once, so that the next request with this key asks the gateway again instead of hearing 409.
          yield* Transaction.run(payments.lease(payment.id, 0))
          return { _tag: "Unknown" as const, paymentId: payment.id, reason: outcome.failure.reason }
        }
        const answer = yield* Transaction.run(finish(payment, outcome.success))
        yield* faults.at("pay.after-commit")
        return { _tag: "Final" as const, paymentId: payment.id, answer }
      })

      const pay = Effect.fn("PayOrder.pay")(
        function* (orderId: OrderId, paymentMethod: PaymentMethod, request: KeyedRequest) {
          const begun = yield* Transaction.run(begin(orderId, paymentMethod, request))
          if (begun._tag === "Final") return begun
          return yield* Effect.flatMap(FiberSet.run(charges, charge(begun.payment)), Fiber.join)
        },
        Effect.provideService(PgClient.PgClient, database)
      )

      return PayOrder.of({ pay })
    })
  )
}
