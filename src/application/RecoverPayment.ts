/**
 * Looks up the outcome of a charge or a refund: after a crash, or when the gateway did not answer. An outcome is never guessed.
 *
 * A charge that the gateway does not know is requested again with the same key, but only in the first half of the key's retention, counted
 * from the intent by the database's clock. Later the gateway may have forgotten the key, and would charge again. After that, and when all
 * runs are used up, the payment becomes `manual`.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Option } from "effect"
import type { PaymentId } from "../domain/Ids.ts"
import { Faults } from "../platform/Faults.ts"
import { Transaction } from "../platform/Transaction.ts"
import * as TaskHandler from "../tasks/TaskHandler.ts"
import { Gateway, GatewaySettings, mayRepeat, OutcomeUnknown, stopwatch } from "./Gateway.ts"
import { PaymentOutcomes, type Recorded } from "./PaymentOutcomes.ts"
import { type OpenPayment, type PaymentNotFound, Payments } from "./Payments.ts"
import { leaseSlackMillis } from "./PayOrder.ts"
import { paymentRecover, type Phase, phaseOfRecovery } from "./tasks/PaymentRecover.ts"

/** The result of a run. */
type Run<E = never> = Effect.fn.Return<Recorded, E | OutcomeUnknown | PaymentNotFound>

export class RecoverPayment extends Context.Service<
  RecoverPayment,
  {
    /**
     * One run for the charge or for the refund. Succeeds when that has an outcome, is `manual`, or was so before. Fails with {@link OutcomeUnknown}
     * where another run may find the outcome; the last run makes the payment `manual` instead. Fails with {@link TaskHandler.NotNow} while another
     * attempt has the payment leased, also in the last run. That attempt may be a run whose outcome the database could not write.
     */
    readonly recover: (
      id: PaymentId,
      options: { readonly phase: Phase; readonly isLast: boolean }
    ) => Effect.Effect<Recorded, OutcomeUnknown | PaymentNotFound | TaskHandler.NotNow>
  }
>()("paid-once/application/RecoverPayment") {
  static readonly layer: Layer.Layer<
    RecoverPayment,
    never,
    Payments | PaymentOutcomes | Gateway | GatewaySettings | PgClient.PgClient
  > = Layer.effect(
    RecoverPayment,
    Effect.gen(function* () {
      const payments = yield* Payments
      const outcomes = yield* PaymentOutcomes
      const gateway = yield* Gateway
      const faults = yield* Faults
      const database = yield* PgClient.PgClient
      const { keyRetentionMillis, timeoutMillis } = yield* GatewaySettings
      // A look-up precedes the charge here, so two gateway timeouts have to fit in.
      const leaseMillis = 2 * timeoutMillis + leaseSlackMillis

      const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, database) as Effect.Effect<A, E>

      /** Leases the payment, so that no request with its key charges at the same time. */
      const takeUp = Effect.fnUntraced(function* (
        id: PaymentId
      ): Effect.fn.Return<OpenPayment, TaskHandler.NotNow | PaymentNotFound, Transaction> {
        const payment = yield* payments.lock(id)
        if (payment.status === "charging" && payment.leased) {
          return yield* new TaskHandler.NotNow({ reason: "another attempt is at work on it" })
        }
        yield* payments.lease(id, leaseMillis)
        return payment
      })

      const tooOld = (what: string) => `the gateway knows of no ${what}, and its key is too old to be used again`

      const late = (what: string) =>
        new OutcomeUnknown({ reason: `this run was held up until the key of the ${what} was too old` })

      const recoverCharge = Effect.fnUntraced(function* (payment: OpenPayment, sinceRead: Effect.Effect<number>): Run {
        const { ageMillis, amountMinor, currency, id, paymentMethod, status } = payment
        const found = yield* gateway.lookUpCharge(id)
        yield* faults.at("recover.after-lookup")
        if (Option.isSome(found)) return yield* outcomes.charged(id, found.value)
        if (status === "manual" || !mayRepeat(ageMillis, keyRetentionMillis)) {
          return yield* outcomes.manual(id, "charge", tooOld("charge"))
        }
        // Checked again right before the charge: a process that was frozen since the look-up must not charge when it wakes up.
        if (!mayRepeat(ageMillis + (yield* sinceRead), keyRetentionMillis)) return yield* late("charge")
        const outcome = yield* gateway.charge({ paymentId: id, amount: { amountMinor, currency }, paymentMethod })
        yield* faults.at("recover.after-charge")
        return yield* outcomes.charged(id, outcome)
      })

      const recoverRefund = Effect.fnUntraced(function* (payment: OpenPayment, sinceRead: Effect.Effect<number>): Run {
        const { amountMinor, currency, id, refundAgeMillis, status } = payment
        const found = yield* gateway.lookUpRefund(id)
        yield* faults.at("recover.after-lookup")
        if (Option.isNone(found) && (status === "manual" || !mayRepeat(refundAgeMillis ?? 0, keyRetentionMillis))) {
          return yield* outcomes.manual(id, "refund", tooOld("refund"))
        }
        if (Option.isNone(found) && !mayRepeat((refundAgeMillis ?? 0) + (yield* sinceRead), keyRetentionMillis)) {
          return yield* late("refund")
        }
        const outcome = Option.isSome(found)
          ? found.value
          : yield* Effect.tap(gateway.refund({ paymentId: id, amount: { amountMinor, currency } }), () =>
              faults.at("recover.after-refund")
            )
        return outcome._tag === "Refunded"
          ? yield* outcomes.refunded(id, { amount: outcome, isOurs: true })
          : yield* outcomes.manual(id, "refund", `the gateway refuses to refund it: ${outcome.reason}`)
      })

      const once = Effect.fnUntraced(function* (id: PaymentId, phase: Phase): Run<TaskHandler.NotNow> {
        const sinceRead = yield* stopwatch
        const payment = yield* transaction(takeUp(id))
        const { capturedMinor, status } = payment
        // A run of the charge's recovery can come after the charge: the refund has a recovery of its own.
        if ((capturedMinor > 0 ? "refund" : "charge") !== phase) return { status, answer: undefined }
        switch (status) {
          case "charging":
          case "refunding":
          case "manual":
            return yield* phase === "refund" ? recoverRefund(payment, sinceRead) : recoverCharge(payment, sinceRead)
          case "captured":
            // Nobody takes a refund back that was asked for: the row was changed.
            return yield* outcomes.contradicted(id, "its refund was asked for, and its row does not say so")
          default:
            return { status, answer: undefined }
        }
      })

      const recover = Effect.fn("RecoverPayment.recover")(
        (
          id: PaymentId,
          { isLast, phase }: { readonly phase: Phase; readonly isLast: boolean }
        ): Effect.Effect<Recorded, OutcomeUnknown | PaymentNotFound | TaskHandler.NotNow> =>
          once(id, phase).pipe(
            // Another attempt's lease is not given back.
            Effect.tapErrorTag("OutcomeUnknown", () => transaction(payments.noteUnknown(id))),
            Effect.catchTag("OutcomeUnknown", (unknown): Effect.Effect<Recorded, OutcomeUnknown | PaymentNotFound> =>
              isLast
                ? outcomes.manual(id, phase, `its outcome could not be found out: ${unknown.reason}`)
                : Effect.fail(unknown)
            )
          )
      )
      return RecoverPayment.of({ recover })
    })
  )
}

/**
 * The handler of `payment.recover`. The task has one run for each delay; the first delay precedes the first run. A run has time for two slow
 * answers of the gateway.
 */
export const handler = (settings: {
  readonly delaysMillis: ReadonlyArray<number>
  readonly gatewayTimeoutMillis: number
}) =>
  TaskHandler.make(
    {
      ...paymentRecover,
      retryDelaysMillis: settings.delaysMillis.slice(1),
      timeoutMillis: 2 * settings.gatewayTimeoutMillis + paymentRecover.timeoutMillis
    },
    ({ idempotencyKey, isLastAttempt, payload: { paymentId } }) =>
      // Payments are never deleted: a missing one is a mistake, and the task fails until somebody has looked at it.
      Effect.asVoid(
        RecoverPayment.use(({ recover }) =>
          recover(paymentId, { phase: phaseOfRecovery(idempotencyKey), isLast: isLastAttempt })
        )
      )
  )
