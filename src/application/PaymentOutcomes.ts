/**
 * Records the outcome of a charge or a refund once. Order, payment, event, stored answer and recovery task change in one transaction.
 *
 * The request's fiber, the recovery task and the gateway's webhook all report outcomes, in any order and any number of times. The first
 * report moves the payment; the others find it moved.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Metric, Result, Schema } from "effect"
import { PaymentId } from "../domain/Ids.ts"
import { type Change, declinePayment, markPaid, markRefunded, type OrderStateConflict } from "../domain/Order.ts"
import { type PaymentStatus } from "../domain/Payment.ts"
import { Faults } from "../platform/Faults.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Tasks } from "../tasks/Tasks.ts"
import type { ChargeOutcome } from "./Gateway.ts"
import { type FinalAnswer, Idempotency } from "./Idempotency.ts"
import { type LockedOrder, Orders, OrderView, viewAfter } from "./Orders.ts"
import { moveOf, type OpenPayment, PaymentNotFound, Payments } from "./Payments.ts"
import { isRecoverPayload, paymentRecover, type Phase, recoveryKeyOf } from "./tasks/PaymentRecover.ts"

/** The payment's status after an outcome was recorded, now or earlier, and the final answer of its key, if there is one. */
export interface Recorded {
  readonly status: PaymentStatus
  readonly answer: FinalAnswer | undefined
}

/** The operation that the gateway has yet to complete for the payment, if any. */
const phaseOf = ({ status }: OpenPayment): Phase | undefined =>
  status === "charging" ? "charge" : status === "refunding" ? "refund" : undefined

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

const settledTotal = Metric.counter("payments_settled_total", {
  description: "Payments by the status that their outcome gave them",
  incremental: true
})

/** See {@link PaymentOutcomes}. */
export interface PaymentOutcomesService {
  /** Records the outcome of the charge. If the order was cancelled meanwhile, a capture is refunded and no event is written. */
  readonly charged: (id: PaymentId, outcome: ChargeOutcome) => Effect.Effect<Recorded, PaymentNotFound>
  /** Records that the gateway has refunded the payment. */
  readonly refunded: (id: PaymentId) => Effect.Effect<Recorded, PaymentNotFound>
  /**
   * The outcome of this phase can't be looked up: a person has to find it. Logged as an error. A later webhook still settles the payment. One that
   * does not wait for this phase any more stays as it is.
   */
  readonly manual: (id: PaymentId, phase: Phase, reason: string) => Effect.Effect<Recorded, PaymentNotFound>
}

export class PaymentOutcomes extends Context.Service<PaymentOutcomes, PaymentOutcomesService>()(
  "paid-once/application/PaymentOutcomes"
) {
  static readonly layer: Layer.Layer<
    PaymentOutcomes,
    never,
    Orders | Payments | Idempotency | Tasks | PgClient.PgClient
  > = Layer.effect(
    PaymentOutcomes,
    Effect.gen(function* () {
      const orders = yield* Orders
      const payments = yield* Payments
      const idempotency = yield* Idempotency
      const tasks = yield* Tasks
      const faults = yield* Faults
      const database = yield* PgClient.PgClient

      /** The payment and its order, locked. The order first, as everywhere: two transactions in one lock order never deadlock. */
      const lock = Effect.fnUntraced(function* (id: PaymentId) {
        const locked = yield* orders.lockOfPayment(id)
        if (locked === undefined) return yield* new PaymentNotFound({ paymentId: id })
        return { locked, payment: yield* payments.lock(id) }
      })

      /** Stores the order's change with its events. They are smaller than OrderPlaced was, which was accepted: a refusal is a defect. */
      const save = (change: Change, { at }: LockedOrder) => Effect.orDie(orders.save(change, { at }))

      const counted = Effect.fnUntraced(function* (status: PaymentStatus) {
        const { afterCommit } = yield* Transaction
        yield* afterCommit(Metric.update(Metric.withAttributes(settledTotal, { status }), 1))
      })

      const ended = (id: PaymentId, phase: Phase, status: PaymentStatus) =>
        Effect.andThen(tasks.settleByKey(paymentRecover, recoveryKeyOf(id, phase)), counted(status))

      const answerTo = (
        payment: OpenPayment,
        outcome: ChargeOutcome,
        locked: LockedOrder,
        change: Change | undefined
      ) =>
        outcome._tag === "Declined"
          ? Effect.map(
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
          : change === undefined
            ? Effect.succeed(undefined)
            : Effect.map(encodeView(viewAfter(locked, change)), (body): FinalAnswer => ({ status: 200, body }))

      const charged = Effect.fn("PaymentOutcomes.charged")(function* (
        id: PaymentId,
        outcome: ChargeOutcome
      ): Effect.fn.Return<Recorded, PaymentNotFound, Transaction> {
        const { locked, payment } = yield* lock(id)
        if (payment.status !== "charging" && !(payment.status === "manual" && payment.capturedMinor === 0)) {
          return { status: payment.status, answer: yield* idempotency.answerOf(id) }
        }
        const made: Result.Result<Change, OrderStateConflict> =
          outcome._tag === "Captured" ? markPaid(locked.order, id) : declinePayment(locked.order, id, outcome.reason)
        // Only a cancellation can change an order with an open payment. The events of a cancelled order do not speak of its payment any more.
        const change = Result.isSuccess(made) ? made.success : undefined
        const move = moveOf(outcome, change !== undefined)
        const answer = yield* Effect.orDie(answerTo(payment, outcome, locked, change))
        if (change !== undefined) yield* save(change, locked)
        yield* payments.move(payment, move)
        if (answer !== undefined) yield* idempotency.answer(id, answer)
        yield* ended(id, "charge", move.to)
        if (move.to === "refunding") {
          yield* tasks.enqueue(paymentRecover, { paymentId: id }, { idempotencyKey: recoveryKeyOf(id, "refund") })
        }
        yield* faults.at("pay.before-commit")
        return { status: move.to, answer }
      })

      const refunded = Effect.fn("PaymentOutcomes.refunded")(function* (
        id: PaymentId
      ): Effect.fn.Return<Recorded, PaymentNotFound, Transaction> {
        const { locked, payment } = yield* lock(id)
        if (payment.status === "refunding" || (payment.status === "manual" && payment.capturedMinor > 0)) {
          const change = markRefunded(locked.order, id)
          if (Result.isSuccess(change)) yield* save(change.success, locked)
          yield* payments.move(payment, { to: "refunded" })
          yield* ended(id, "refund", "refunded")
          yield* faults.at("refund.before-commit")
          return { status: "refunded", answer: undefined }
        }
        return { status: payment.status, answer: undefined }
      })

      /** The caller holds the payment's lock. */
      const toManual = Effect.fnUntraced(function* (payment: OpenPayment, phase: Phase, reason: string) {
        const { afterCommit } = yield* Transaction
        const { amountMinor, currency, id, orderId } = payment
        yield* payments.move(payment, { to: "manual" })
        yield* counted("manual")
        yield* afterCommit(
          Effect.logError(
            `payment ${id} of order ${orderId} needs a person: ${reason}. Look at the gateway whether its ` +
              `${phase} of ${amountMinor} ${currency} was made; its webhook settles it`
          )
        )
      })

      const manual = Effect.fn("PaymentOutcomes.manual")(function* (
        id: PaymentId,
        phase: Phase,
        reason: string
      ): Effect.fn.Return<Recorded, PaymentNotFound, Transaction> {
        const payment = yield* payments.lock(id)
        if (phaseOf(payment) !== phase) return { status: payment.status, answer: yield* idempotency.answerOf(id) }
        yield* toManual(payment, phase, reason)
        yield* tasks.settleByKey(paymentRecover, recoveryKeyOf(id, phase))
        return { status: "manual", answer: undefined }
      })

      // A payment whose recovery is cancelled is recovered by nobody. The cancelling transaction ends the task itself.
      yield* tasks.onCancel(paymentRecover, ({ idempotencyKey, operator: { actor, reason }, payload }) =>
        Effect.gen(function* () {
          if (!isRecoverPayload(payload)) return
          const payment = yield* payments.lock(payload.paymentId)
          const phase = phaseOf(payment)
          // A run of the charge's recovery can outlast the charge: the refund has a task of its own.
          if (phase === undefined || idempotencyKey !== recoveryKeyOf(payment.id, phase)) return
          yield* toManual(payment, phase, `${actor} has cancelled its recovery: ${reason}`)
        }).pipe(Effect.catchTag("PaymentNotFound", () => Effect.void))
      )

      const run = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, database) as Effect.Effect<A, E>

      return PaymentOutcomes.of({
        charged: (id, outcome) => run(charged(id, outcome)),
        refunded: (id) => run(refunded(id)),
        manual: (id, phase, reason) => run(manual(id, phase, reason))
      })
    })
  )
}
