/**
 * Paying an order, in three phases that each can be resumed:
 *
 * 1. Intent, one transaction: the key is claimed, the payment stored as `charging`, and its recovery enqueued, before any money moves.
 * 2. Charge, outside any transaction, in a fiber of the service: a client that hangs up does not stop it. The payment's id is the gateway's
 *    idempotency key, so a repeated charge after a crash does not charge twice.
 * 3. Outcome, one transaction ({@link PaymentOutcomes}): order, payment, event and stored answer, all or none.
 *
 * A process that dies between two phases leaves a `charging` payment. The next request with the same key resumes it, and so does
 * {@link RecoverPayment} without any request. Once the gateway has failed to answer, only the recovery continues.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Fiber, FiberSet, Layer, Result, Schema } from "effect"
import { type OrderId, PaymentId } from "../domain/Ids.ts"
import { OrderStateConflict } from "../domain/Order.ts"
import { type PaymentMethod } from "../domain/Payment.ts"
import { Faults } from "../platform/Faults.ts"
import { Ids } from "../platform/Ids.ts"
import * as Traced from "../platform/Traced.ts"
import { Transaction } from "../platform/Transaction.ts"
import * as Turn from "../platform/Turn.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { Gateway, GatewaySettings, mayRepeat, OutcomeUnknown, stopwatch } from "./Gateway.ts"
import { type FinalAnswer, Idempotency, type KeyedRequest, type KeyReused } from "./Idempotency.ts"
import { type OrderNotFound, Orders } from "./Orders.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"
import { type OpenPayment, type PaymentOpen, Payments } from "./Payments.ts"
import { paymentRecover, recoveryKeyOf, RecoverySettings } from "./tasks/PaymentRecover.ts"

/** Another request with the same key is at work on this payment. */
export class PaymentInProgress extends Schema.TaggedError<PaymentInProgress>()("PaymentInProgress", {
  paymentId: PaymentId
}) {
  override get message() {
    return `a request with the same Idempotency-Key is still being processed (payment ${this.paymentId})`
  }
}

/** Too many payments wait for the gateway. Nothing was written. */
export class TooManyPayments extends Schema.TaggedError<TooManyPayments>()("TooManyPayments", {
  underWay: Schema.Int
}) {
  override get message() {
    return `${this.underWay} payments wait for the gateway: try again in a moment`
  }
}

/** The result of a request to pay: a final answer, or a payment without an outcome yet. */
export type PayResult =
  | { readonly _tag: "Final"; readonly paymentId: PaymentId; readonly answer: FinalAnswer }
  | {
      readonly _tag: "Unknown"
      readonly paymentId: PaymentId
      readonly status: "charging" | "manual"
      readonly reason: string
    }

type PayFailure = KeyReused | OrderNotFound | OrderStateConflict | PaymentInProgress | PaymentOpen | TooManyPayments

/**
 * How much longer than the gateway's timeout a payment stays leased: the attempt's last transaction has to fit in. After a crash the same
 * key is answered 409 until the lease is over, and then resumes the payment.
 */
export const leaseSlackMillis = 3_000

/** Bounds the charges under way, each at most for the gateway's timeout. A charge holds some hundred kilobytes: a fiber, a request, a socket. */
const maxCharges = 1_000

export class PayOrder extends Context.Service<
  PayOrder,
  {
    readonly pay: (
      orderId: OrderId,
      paymentMethod: PaymentMethod,
      request: KeyedRequest
    ) => Effect.Effect<PayResult, PayFailure>
  }
>()("paid-once/application/PayOrder") {
  static readonly layer: Layer.Layer<
    PayOrder,
    never,
    Orders | Payments | PaymentOutcomes | Idempotency | Gateway | GatewaySettings | Ids | Tasks | PgClient.PgClient
  > = Layer.effect(
    PayOrder,
    Effect.gen(function* () {
      const orders = yield* Orders
      const payments = yield* Payments
      const outcomes = yield* PaymentOutcomes
      const idempotency = yield* Idempotency
      const gateway = yield* Gateway
      const tasks = yield* Tasks
      const faults = yield* Faults
      const ids = yield* Ids
      const database = yield* PgClient.PgClient
      const { keyRetentionMillis, timeoutMillis } = yield* GatewaySettings
      const { delaysMillis } = yield* RecoverySettings
      const leaseMillis = timeoutMillis + leaseSlackMillis
      const firstDelayMillis = delaysMillis[0] ?? 0
      /** Charges under way. A stop waits for them: each is bounded by the gateway's timeout. */
      const charges = yield* FiberSet.make<PayResult, OrderStateConflict>()
      yield* Effect.addFinalizer(() => FiberSet.awaitEmpty(charges))

      /** An earlier request with the key has begun a payment: resumes it, or returns its state. */
      const resume = Effect.fnUntraced(function* (id: PaymentId) {
        const payment = yield* Effect.orDie(payments.lock(id))
        switch (payment.status) {
          case "charging": {
            if (payment.isUnknown) break
            if (payment.leased) return yield* new PaymentInProgress({ paymentId: id })
            if (mayRepeat(payment.ageMillis, keyRetentionMillis)) {
              yield* payments.lease(id, leaseMillis)
              return { _tag: "Charge" as const, payment }
            }
            // Too old to be charged without a look-up, which the recovery does.
            yield* payments.noteUnknown(id)
            break
          }
          case "manual":
            break
          default:
            return yield* withoutAnswer(payment)
        }
        return {
          _tag: "Unknown" as const,
          paymentId: id,
          status: payment.status === "manual" ? ("manual" as const) : ("charging" as const),
          reason: "the gateway has not told the outcome yet"
        }
      })

      /** Phase 1. Returns the payment to be charged, or the result of an earlier request with the key. */
      const begin = Traced.fn("PayOrder.intent")(function* (
        orderId: OrderId,
        paymentMethod: PaymentMethod,
        request: KeyedRequest
      ) {
        // The order's lock comes first, for everybody: two transactions in one lock order never deadlock.
        const order = yield* orders.lock(orderId)
        const paymentId = PaymentId.make(ids.next())
        const key = yield* idempotency.claim(request, paymentId)
        if (key._tag === "Begun") return yield* resume(PaymentId.make(key.subjectId))
        if (key._tag === "Answered") {
          return { _tag: "Final" as const, paymentId: PaymentId.make(key.subjectId), answer: key.answer }
        }
        if (order.status !== "pending") {
          return yield* new OrderStateConflict({ orderId, status: order.status, wanted: "paid" })
        }
        const payment = yield* payments.open(order, paymentId, paymentMethod, leaseMillis)
        yield* tasks.enqueue(
          paymentRecover,
          { paymentId },
          { idempotencyKey: recoveryKeyOf(paymentId, "charge"), delayMillis: Math.max(leaseMillis, firstDelayMillis) }
        )
        return { _tag: "Charge" as const, payment }
      })

      /** Phases 2 and 3. */
      const charge = Traced.fn("PayOrder.charge")(
        function* (
          payment: OpenPayment,
          sinceRead: Effect.Effect<number>
        ): Effect.fn.Return<PayResult, OrderStateConflict, PgClient.PgClient> {
          yield* faults.at("pay.after-intent")
          // A process that was frozen here for half a day must not charge when it wakes up. The payment may be charged already, and its key forgotten.
          const isInTime = mayRepeat(payment.ageMillis + (yield* sinceRead), keyRetentionMillis)
          const outcome = yield* Effect.result(
            isInTime
              ? gateway.charge({
                  paymentId: payment.id,
                  amount: { amountMinor: payment.amountMinor, currency: payment.currency },
                  paymentMethod: payment.paymentMethod
                })
              : Effect.fail(new OutcomeUnknown({ reason: "the intent is too old to be charged without a look-up" }))
          )
          if (isInTime) yield* faults.at("pay.after-charge")
          if (Result.isFailure(outcome)) {
            yield* Transaction.run(
              Effect.andThen(
                payments.noteUnknown(payment.id),
                tasks.hastenByKey(paymentRecover, recoveryKeyOf(payment.id, "charge"), firstDelayMillis)
              )
            )
            return { _tag: "Unknown", paymentId: payment.id, status: "charging", reason: outcome.failure.reason }
          }
          const { answer, status } = yield* Effect.orDie(outcomes.charged(payment.id, outcome.success))
          yield* faults.at("pay.after-commit")
          if (answer === undefined && status === "manual") {
            return { _tag: "Unknown", paymentId: payment.id, status, reason: "the gateway contradicts itself" }
          }
          return answer === undefined ? yield* withoutAnswer(payment) : { _tag: "Final", paymentId: payment.id, answer }
        },
        // The client may be gone, and nothing else would report the defect.
        Effect.tapDefect((defect) => Effect.logError("a charge failed; its payment will be recovered", defect))
      )

      const pay = Traced.fn("PayOrder.pay")(
        function* (orderId: OrderId, paymentMethod: PaymentMethod, request: KeyedRequest) {
          const underWay = yield* FiberSet.size(charges)
          if (underWay >= maxCharges) return yield* new TooManyPayments({ underWay })
          const sinceRead = yield* stopwatch
          const begun = yield* Transaction.run(begin(orderId, paymentMethod, request))
          if (begun._tag !== "Charge") return begun
          const charging = yield* FiberSet.run(charges, charge(begun.payment, sinceRead))
          return yield* Turn.aside(Fiber.join(charging))
        },
        Effect.provideService(PgClient.PgClient, database)
      )

      return PayOrder.of({ pay })
    })
  )
}

/** The payment ended without paying its order, which was cancelled meanwhile. A capture is refunded. */
const withoutAnswer = ({ orderId }: OpenPayment) =>
  Effect.fail(new OrderStateConflict({ orderId, status: "cancelled", wanted: "paid" }))
