/**
 * Finding out what became of a charge or a refund whose outcome nobody here knows: after a crash, or because the gateway did not answer.
 *
 * It is looked up, never guessed. What the gateway does not know is asked for again with the same key, but only in the first half of
 * the time for which the gateway knows a key, by the database's clock and since the intent: later the gateway may have forgotten a
 * charge that it made, and would make another. Then, and when the runs are used up, the payment is `manual`.
 */
import type { PaymentId } from "../domain/Ids.ts"
import { PgClient } from "@effect/sql-pg"
import { Context, Data, Effect, Layer, Option } from "effect"
import * as TaskHandler from "../tasks/TaskHandler.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Faults } from "../platform/Faults.ts"
import { Gateway, GatewaySettings, mayRepeat, OutcomeUnknown, stopwatch } from "./Gateway.ts"
import { PaymentOutcomes, type Recorded } from "./PaymentOutcomes.ts"
import { leaseSlackMillis } from "./PayOrder.ts"
import { type OpenPayment, type PaymentNotFound, Payments } from "./Payments.ts"
import { paymentRecover } from "./tasks/PaymentRecover.ts"

/** Another attempt is at work on the payment. */
class Busy extends Data.TaggedError("Busy") {
  override readonly message = "another attempt is at work on it"
}

/** What a run comes to. */
type Run<E = never> = Effect.fn.Return<Recorded, E | OutcomeUnknown | PaymentNotFound>

export class RecoverPayment extends Context.Service<
  RecoverPayment,
  {
    /**
     * One run: the payment is settled, or `manual`, or was so already; fails with {@link OutcomeUnknown} where it is worth another try
     * (not when `isLast`).
     */
    readonly recover: (
      id: PaymentId,
      options: { readonly isLast: boolean }
    ) => Effect.Effect<Recorded, OutcomeUnknown | PaymentNotFound>
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
      // A look-up comes in front of the charge here.
      const leaseMillis = 2 * timeoutMillis + leaseSlackMillis

      const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, database) as Effect.Effect<A, E>

      /** Takes the payment up: leased, so that a request with its key does not charge beside us. */
      const takeUp = Effect.fnUntraced(function* (
        id: PaymentId
      ): Effect.fn.Return<OpenPayment, Busy | PaymentNotFound, Transaction> {
        const payment = yield* payments.lock(id)
        if (payment.status === "charging" && payment.leased) {
          return yield* new Busy()
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
          return yield* outcomes.manual(id, tooOld("charge"))
        }
        // Once more, right before it is sent: a process that was frozen since the look must not charge when it wakes up.
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
          return yield* outcomes.manual(id, tooOld("refund"))
        }
        if (Option.isNone(found) && !mayRepeat((refundAgeMillis ?? 0) + (yield* sinceRead), keyRetentionMillis)) {
          return yield* late("refund")
        }
        const outcome = Option.isSome(found)
          ? found.value
          : yield* gateway.refund({ paymentId: id, amount: { amountMinor, currency } })
        yield* faults.at("recover.after-refund")
        return outcome._tag === "Refunded"
          ? yield* outcomes.refunded(id)
          : yield* outcomes.manual(id, `the gateway refuses to refund it: ${outcome.reason}`)
      })

      const once = Effect.fnUntraced(function* (id: PaymentId): Run<Busy> {
        const sinceRead = yield* stopwatch
        const payment = yield* transaction(takeUp(id))
        const { capturedMinor, status } = payment
        switch (status) {
          case "charging":
          case "refunding":
          case "manual":
            return yield* capturedMinor > 0 ? recoverRefund(payment, sinceRead) : recoverCharge(payment, sinceRead)
          default:
            return { status, answer: undefined }
        }
      })

      const recoverOrTryAgain = (id: PaymentId): Effect.Effect<Recorded, OutcomeUnknown | PaymentNotFound> =>
        once(id).pipe(
          Effect.tapErrorTag("OutcomeUnknown", () => transaction(payments.noteUnknown(id))),
          // Its lease is not ours to give back.
          Effect.catchTag("Busy", (busy) => Effect.fail(new OutcomeUnknown({ reason: busy.message })))
        )

      const recover = Effect.fn("RecoverPayment.recover")((id: PaymentId, { isLast }: { readonly isLast: boolean }) =>
        Effect.catchTag(
          recoverOrTryAgain(id),
          "OutcomeUnknown",
          (unknown): Effect.Effect<Recorded, OutcomeUnknown | PaymentNotFound> =>
            isLast ? outcomes.manual(id, `its outcome could not be found out: ${unknown.reason}`) : Effect.fail(unknown)
        )
      )
      return RecoverPayment.of({ recover })
    })
  )
}

/**
 * What workers do with a task `payment.recover`: as many runs as there are delays, the first of which is in front of it, each with time for
 * two answers of a gateway that takes its time for both.
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
    ({ isLastAttempt, payload }) =>
      // A payment is never deleted: one that is not there is a mistake, and a retry finds it again.
      Effect.asVoid(RecoverPayment.use(({ recover }) => recover(payload.paymentId, { isLast: isLastAttempt })))
  )
