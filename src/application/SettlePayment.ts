/**
 * An operator's way to a payment that waits for a person: ask the gateway about it, and settle it.
 *
 * An outcome is recorded by the same transactions as the gateway's own answers ({@link PaymentOutcomes}), so the order, its event, the stored
 * answer and the tasks go along. The gateway is asked before, outside of the transaction, and never asked to move money.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Result, Schema } from "effect"
import { PaymentId } from "../domain/Ids.ts"
import { OrderStatus } from "../domain/Order.ts"
import { Payment } from "../domain/Payment.ts"
import * as OperatorAudit from "../platform/OperatorAudit.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Gateway } from "./Gateway.ts"
import { compare, decide, Finding, nameable, ofCharge, ofRefund, Outcome, Verdict } from "./GatewayFindings.ts"
import { Orders } from "./Orders.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"
import { type OpenPayment, PaymentNotFound, Payments } from "./Payments.ts"

/** The subject of a payment's entries in the audit. */
export const auditSubject = "payment"

/** The payment can't be settled so. Nothing was changed. */
export class SettleRefused extends Schema.TaggedError<SettleRefused>()("SettleRefused", {
  paymentId: PaymentId,
  reason: Schema.String
}) {
  override get message() {
    return `payment ${this.paymentId} ${this.reason}`
  }
}

/** A payment beside what the gateway says about it. */
export const Checked = Schema.Struct({
  payment: Payment,
  verdict: Verdict,
  charge: Finding,
  refund: Finding,
  /** The outcomes that a `manual` payment may be settled with: one where the gateway has decided, else by an operator's word. */
  mayBecome: Schema.Array(Outcome)
}).annotate({ identifier: "CheckedPayment" })
export type Checked = typeof Checked.Type

/** How to settle: with `as` the operator says what the gateway can't. `withoutGateway` allows that where the gateway gives no answer at all. */
export const SettleInput = Schema.Struct({
  as: Schema.optionalKey(Outcome),
  withoutGateway: Schema.optionalKey(Schema.Boolean)
})

/** A payment after `settle`. `changed` is false where it was settled before. */
export const Settled = Schema.Struct({ payment: Payment, orderStatus: OrderStatus, changed: Schema.Boolean })
export type Settled = typeof Settled.Type

/** Whether a payment that is settled already is what the operator says. */
const isAlready = (as: Outcome | undefined, { capturedMinor, status }: OpenPayment): boolean =>
  as === undefined || (as === "captured" ? capturedMinor > 0 : status === as)

/** The reason of a decline that the operator says: the customer reads it, and not the operator's own words. */
const declineReason = "no charge was made"

export class SettlePayment extends Context.Service<
  SettlePayment,
  {
    /** Asks the gateway what it knows of the payment's charge and refund, and compares. Changes nothing. */
    readonly check: (id: PaymentId) => Effect.Effect<Checked, PaymentNotFound>
    /**
     * Settles a `manual` payment with what the gateway has done, else with what the operator says ({@link decide}). Audited in the same transaction.
     * A payment that is settled already stays as it is: a repeated call changes nothing.
     */
    readonly settle: (
      id: PaymentId,
      input: typeof SettleInput.Type,
      operator: OperatorAudit.Operator
    ) => Effect.Effect<Settled, PaymentNotFound | SettleRefused>
  }
>()("paid-once/application/SettlePayment") {
  static readonly layer: Layer.Layer<
    SettlePayment,
    never,
    Orders | Payments | PaymentOutcomes | Gateway | PgClient.PgClient
  > = Layer.effect(
    SettlePayment,
    Effect.gen(function* () {
      const orders = yield* Orders
      const payments = yield* Payments
      const outcomes = yield* PaymentOutcomes
      const gateway = yield* Gateway
      const database = yield* PgClient.PgClient
      const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, database) as Effect.Effect<A, E>

      const read = (id: PaymentId) => transaction(payments.lock(id))

      const check = Effect.fn("SettlePayment.check")(function* (id: PaymentId) {
        const payment = yield* read(id)
        const [charge, refund] = yield* Effect.all([ofCharge(gateway, payment), ofRefund(gateway, payment)], {
          concurrency: 2
        })
        const finding = payment.capturedMinor > 0 ? refund : charge
        const mayBecome =
          payment.status !== "manual"
            ? []
            : Outcome.literals.filter((outcome) => Result.isSuccess(decide(payment, finding, outcome, true)))
        return {
          payment: yield* payments.get(id),
          verdict: compare(payment, charge, refund),
          charge,
          refund,
          mayBecome
        }
      })

      /** Records the outcome. The end of a dispute, or of a contradiction after a decline, has no event: the order has heard it before. */
      const record = (payment: OpenPayment, outcome: Outcome, { reason = declineReason }: Finding) => {
        const { amountMinor, capturedMinor, currency, id, wasDeclined } = payment
        const amount = { amountMinor, currency }
        switch (outcome) {
          case "refunded":
            return outcomes.refunded(id, { amount, isOurs: false })
          case "captured":
            return capturedMinor > 0
              ? payments.move(payment, { to: "captured" })
              : outcomes.charged(id, { _tag: "Captured", ...amount })
          case "declined":
            return wasDeclined
              ? payments.move(payment, { to: "declined", reason })
              : outcomes.charged(id, { _tag: "Declined", reason })
        }
      }

      const now = Effect.fnUntraced(function* (id: PaymentId) {
        const payment = yield* payments.get(id)
        return { payment, orderStatus: (yield* Effect.orDie(orders.summary(payment.orderId))).status }
      })

      /** The answer for a payment that does not wait for a person. */
      const unchanged = Effect.fnUntraced(function* (payment: OpenPayment, as: Outcome | undefined) {
        const { id: paymentId, status } = payment
        if (status !== "charging" && isAlready(as, payment)) return { ...(yield* now(paymentId)), changed: false }
        const reason =
          status === "charging" ? "is charging: its recovery looks for the outcome" : `is ${status} already`
        return yield* new SettleRefused({ paymentId, reason })
      })

      const settleOnce = Effect.fnUntraced(function* (
        asked: OpenPayment,
        finding: Finding,
        { as, withoutGateway = false }: typeof SettleInput.Type,
        operator: OperatorAudit.Operator
      ): Effect.fn.Return<Settled, PaymentNotFound | SettleRefused, Transaction> {
        const { id: paymentId } = asked
        // The order before its payment, as everywhere: two transactions in one lock order never deadlock.
        yield* orders.lockOfPayment(paymentId)
        const payment = yield* payments.lock(paymentId)
        if (payment.status !== "manual") return yield* unchanged(payment, as)
        // The gateway was asked about its charge, and now it waits for its refund, or the other way round.
        if (String(nameable(payment)) !== String(nameable(asked))) {
          return yield* new SettleRefused({ paymentId, reason: "has changed while the gateway was asked: try again" })
        }
        const outcome = yield* Effect.fromResult(
          Result.mapError(
            decide(payment, finding, as, withoutGateway),
            (reason) => new SettleRefused({ paymentId, reason })
          )
        )
        const before = yield* now(paymentId)
        yield* record(payment, outcome, finding)
        const after = yield* now(paymentId)
        const stateOf = ({ orderStatus, payment: { capturedMinor, refundedMinor, status } }: typeof before) => ({
          status,
          orderStatus,
          capturedMinor,
          refundedMinor
        })
        yield* Effect.orDie(
          OperatorAudit.record({
            ...operator,
            action: "settle",
            subject: auditSubject,
            subjectId: paymentId,
            before: stateOf(before),
            after: { ...stateOf(after), as: as ?? null, gateway: finding.words }
          })
        )
        const { afterCommit } = yield* Transaction
        yield* afterCommit(OperatorAudit.log(operator, `payment ${paymentId} is settled as ${outcome}`))
        return { ...after, changed: true }
      })

      return SettlePayment.of({
        check,
        settle: Effect.fn("SettlePayment.settle")(function* (id, input, operator) {
          const asked = yield* read(id)
          if (asked.status !== "manual") return yield* unchanged(asked, input.as)
          const finding = yield* asked.capturedMinor > 0 ? ofRefund(gateway, asked) : ofCharge(gateway, asked)
          return yield* transaction(settleOnce(asked, finding, input, operator))
        })
      })
    })
  )
}
