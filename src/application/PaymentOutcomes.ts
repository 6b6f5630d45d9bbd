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
import { PaymentStatus } from "../domain/Payment.ts"
import * as ReportedAmount from "../domain/ReportedAmount.ts"
import { Faults } from "../platform/Faults.ts"
import * as Traced from "../platform/Traced.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Tasks } from "../tasks/Tasks.ts"
import type { ChargeOutcome } from "./Gateway.ts"
import { type FinalAnswer, Idempotency } from "./Idempotency.ts"
import { encodeView, type LockedOrder, Orders, viewAfter } from "./Orders.ts"
import { contradiction, needsPerson, tell } from "./PaymentAlarms.ts"
import { contradictionsTotal } from "./PaymentMetrics.ts"
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

const settledTotal = Metric.counter("payments_settled_total", {
  description: "Payments by the status that their outcome gave them",
  incremental: true
})
const settledAs = (status: PaymentStatus) => Metric.withAttributes(settledTotal, { status })

/** A refund that the gateway has made. */
export interface MadeRefund {
  readonly amount: ReportedAmount.ReportedAmount
  /** It has the key of the service's own refund. Any other one was made at the gateway, by a person. */
  readonly isOurs: boolean
}

/** See {@link PaymentOutcomes}. */
export interface PaymentOutcomesService {
  /**
   * Records the outcome of the charge. If the order was cancelled meanwhile, or the charge was reported as declined, a capture is refunded and no
   * event is written. A capture of another amount is no capture of this payment, which becomes `manual`. A decline after a capture moves nothing.
   */
  readonly charged: (id: PaymentId, outcome: ChargeOutcome) => Effect.Effect<Recorded, PaymentNotFound>
  /**
   * Records a refund. A refund that the service has not asked for moves the payment and its order as its own would, where it names exactly
   * the payment's amount. Any other one makes the payment `manual`: the books know no part of an amount.
   */
  readonly refunded: (id: PaymentId, refund: MadeRefund) => Effect.Effect<Recorded, PaymentNotFound>
  /**
   * The gateway reports what the books have no place for, such as a dispute: `reason` says what. A captured payment becomes `manual`, without an
   * event of its order. Logged as an error and counted, whatever the payment's status is.
   */
  readonly contradicted: (id: PaymentId, reason: string) => Effect.Effect<Recorded, PaymentNotFound>
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
      // There at 0 from the start, but for the status of a new payment: an alert compares with the value before the first outcome.
      yield* Metric.value(contradictionsTotal)
      for (const status of PaymentStatus.literals) if (status !== "charging") yield* Metric.value(settledAs(status))

      /** The payment and its order, locked. The order first, as everywhere: two transactions in one lock order never deadlock. */
      const lock = Effect.fnUntraced(function* (id: PaymentId) {
        const locked = yield* orders.lockOfPayment(id)
        if (locked === undefined) return yield* new PaymentNotFound({ paymentId: id })
        return { locked, payment: yield* payments.lock(id) }
      })

      /** Stores the order's change with its events. They are smaller than OrderPlaced was, which was accepted: a refusal is a defect. */
      const save = (change: Change, { at }: LockedOrder) => Effect.orDie(orders.save(change, at))

      const counted = Effect.fnUntraced(function* (status: PaymentStatus) {
        const { afterCommit } = yield* Transaction
        yield* afterCommit(Metric.update(settledAs(status), 1))
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
            : Effect.succeed<FinalAnswer>({ status: 200, body: encodeView(viewAfter(locked, change)) })

      const charged = Traced.fn("PaymentOutcomes.charged")(function* (
        id: PaymentId,
        outcome: ChargeOutcome
      ): Effect.fn.Return<Recorded, PaymentNotFound, Transaction> {
        const { locked, payment } = yield* lock(id)
        if (payment.wasDeclined && payment.capturedMinor === 0 && outcome._tag === "Captured") {
          return yield* capturedAfterDecline(payment, outcome)
        }
        if (outcome._tag === "Captured" && ReportedAmount.contradicts(outcome, payment)) {
          return yield* handOver(payment, `the gateway has captured ${ReportedAmount.describe(outcome)} for it`)
        }
        if (
          payment.wasDeclined ||
          (payment.status !== "charging" && !(payment.status === "manual" && payment.capturedMinor === 0))
        ) {
          // A decline after a capture moves nothing: no money is missing.
          if (outcome._tag === "Declined" && !payment.wasDeclined) {
            yield* contradiction(payment, `is ${payment.status}, and the gateway says that it was declined`)
          }
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
        if (move.to === "refunding") yield* giveBack(id)
        yield* faults.at("pay.before-commit")
        return { status: move.to, answer }
      })

      /** The task that asks the gateway for the refund. */
      const giveBack = (id: PaymentId) =>
        tasks.enqueue(paymentRecover, { paymentId: id }, { idempotencyKey: recoveryKeyOf(id, "refund") })

      /** The decline was answered and announced, and stays: the gateway holds money that pays no order. The caller holds the payment's lock. */
      const capturedAfterDecline = Effect.fnUntraced(function* (
        payment: OpenPayment,
        outcome: Extract<ChargeOutcome, { readonly _tag: "Captured" }>
      ) {
        const { id, status } = payment
        const answer = yield* idempotency.answerOf(id)
        if (ReportedAmount.contradicts(outcome, payment)) {
          const reason = `the gateway has captured ${ReportedAmount.describe(outcome)} after it had declined`
          yield* contradiction(payment, needsPerson(reason, `It was ${status}`))
          if (status === "manual") return { status, answer }
          yield* payments.move(payment, { to: "manual" })
          yield* counted("manual")
          return { status: "manual" as const, answer }
        }
        yield* payments.move(payment, { to: "refunding" })
        yield* counted("refunding")
        yield* giveBack(id)
        yield* contradiction(payment, "was captured after the gateway had declined it. The money is given back")
        return { status: "refunding" as const, answer }
      })

      const refunded = Traced.fn("PaymentOutcomes.refunded")(function* (
        id: PaymentId,
        { amount, isOurs }: MadeRefund
      ): Effect.fn.Return<Recorded, PaymentNotFound, Transaction> {
        const { locked, payment } = yield* lock(id)
        const { status } = payment
        if (payment.capturedMinor === 0) return { status, answer: undefined }
        // The service knows the amount of the refund that it has asked for. Any other one has to name it, unless the money is back already.
        const isAsked = isOurs && payment.refundAgeMillis !== null
        if (
          isAsked || status === "refunded"
            ? ReportedAmount.contradicts(amount, payment)
            : !ReportedAmount.confirms(amount, payment)
        ) {
          const whose = isAsked ? "the refund that was asked for as one" : "a refund that nobody here has asked for,"
          return yield* handOver(payment, `the gateway reports ${whose} of ${ReportedAmount.describe(amount)}`)
        }
        if (status === "refunded") return { status, answer: undefined }
        const change = markRefunded(locked.order, id)
        // The order of a declined payment may have been paid by another one.
        if (Result.isSuccess(change) && !payment.wasDeclined) yield* save(change.success, locked)
        yield* payments.move(payment, { to: "refunded" })
        yield* ended(id, "refund", "refunded")
        yield* faults.at("refund.before-commit")
        return { status: "refunded", answer: undefined }
      })

      const contradicted = Traced.fn("PaymentOutcomes.contradicted")(function* (
        id: PaymentId,
        reason: string
      ): Effect.fn.Return<Recorded, PaymentNotFound, Transaction> {
        return yield* handOver(yield* payments.lock(id), reason)
      })

      /** Hands the payment over to a person, as far as its status allows. The caller holds the payment's lock. */
      const handOver = Effect.fnUntraced(function* (payment: OpenPayment, reason: string) {
        const { id, status } = payment
        yield* contradiction(payment, needsPerson(reason, `It was ${status}`))
        const answer = yield* idempotency.answerOf(id)
        const phase = phaseOf(payment)
        if (phase === undefined && status !== "captured") return { status, answer }
        yield* payments.move(payment, { to: "manual" })
        yield* counted("manual")
        if (phase !== undefined) yield* tasks.settleByKey(paymentRecover, recoveryKeyOf(id, phase))
        return { status: "manual" as const, answer }
      })

      /** The caller holds the payment's lock. */
      const toManual = Effect.fnUntraced(function* (payment: OpenPayment, phase: Phase, reason: string) {
        yield* payments.move(payment, { to: "manual" })
        yield* counted("manual")
        const advice = `Look at the gateway whether its ${phase} was made; its webhook settles it, or payments settle`
        yield* tell(payment, needsPerson(reason, advice))
      })

      const manual = Traced.fn("PaymentOutcomes.manual")(function* (
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
        refunded: (id, refund) => run(refunded(id, refund)),
        contradicted: (id, reason) => run(contradicted(id, reason)),
        manual: (id, phase, reason) => run(manual(id, phase, reason))
      })
    })
  )
}
