/**
 * The gateway's word about a payment: a sentence for a person, whether the books agree with it, and what an operator may settle. Pure but for
 * the look-ups, which change nothing.
 */
import { Effect, Option, Result, Schema } from "effect"
import { format } from "../domain/Money.ts"
import * as ReportedAmount from "../domain/ReportedAmount.ts"
import { type GatewayService } from "./Gateway.ts"
import type { OpenPayment } from "./Payments.ts"

/** What the gateway says about a charge or a refund. `another amount`: it was made, and not as this payment's. */
export const Finding = Schema.Struct({
  says: Schema.Literals(["captured", "declined", "refunded", "another amount", "nothing", "no answer"]),
  /** The whole sentence. */
  words: Schema.String,
  /** Of a decline, as the gateway has it. */
  reason: Schema.optionalKey(Schema.String)
})
export type Finding = typeof Finding.Type

/** The outcomes that a `manual` payment is settled with. */
export const Outcome = Schema.Literals(["captured", "declined", "refunded"])
export type Outcome = typeof Outcome.Type

const made = (says: "captured" | "refunded", amount: ReportedAmount.ReportedAmount, payment: OpenPayment): Finding =>
  ReportedAmount.contradicts(amount, payment)
    ? {
        says: "another amount",
        words: `the gateway has ${says} ${ReportedAmount.describe(amount)}, not ${format(payment)}`
      }
    : { says, words: `the gateway has ${says} ${format(payment)}` }

const unheard = ({ reason }: { readonly reason: string }): Effect.Effect<Finding> =>
  Effect.succeed({ says: "no answer", words: `the gateway does not tell: ${reason}` })

/** Asks for the payment's charge. */
export const ofCharge = (gateway: GatewayService, payment: OpenPayment): Effect.Effect<Finding> =>
  Effect.map(
    gateway.lookUpCharge(payment.id),
    Option.match({
      onNone: (): Finding => ({ says: "nothing", words: "the gateway knows of no charge" }),
      onSome: (found) =>
        found._tag === "Captured"
          ? made("captured", found, payment)
          : { says: "declined" as const, words: `the gateway has declined it: ${found.reason}`, reason: found.reason }
    })
  ).pipe(Effect.catch(unheard))

/** Asks for the refund under the service's own key. The gateway tells of no other one. */
export const ofRefund = (gateway: GatewayService, payment: OpenPayment): Effect.Effect<Finding> =>
  Effect.map(
    gateway.lookUpRefund(payment.id),
    Option.match({
      onNone: (): Finding => ({ says: "nothing", words: "the gateway knows of no refund of ours" }),
      onSome: (found) =>
        found._tag === "Refunded"
          ? made("refunded", found, payment)
          : { says: "nothing" as const, words: `the gateway refuses the refund: ${found.reason}` }
    })
  ).pipe(Effect.catch(unheard))

/** Whether the books agree with the gateway's. `unknown`: it does not tell enough. */
export const Verdict = Schema.Literals(["agree", "differ", "unknown"])
export type Verdict = typeof Verdict.Type

const chargeVerdict = ({ capturedMinor, status }: OpenPayment, { says }: Finding): Verdict => {
  if (says === "captured" && capturedMinor > 0) return "agree"
  // Of a declined charge the gateway has nothing to remember. Any other one it may have forgotten.
  if (status === "declined" && (says === "declined" || says === "nothing")) return "agree"
  return says === "nothing" || says === "no answer" ? "unknown" : "differ"
}

const refundVerdict = ({ status }: OpenPayment, { says }: Finding): Verdict => {
  if ((says === "refunded") === (status === "refunded") && (says === "refunded" || says === "nothing")) return "agree"
  // A refund that it does not know may have been made there by a person, under another key.
  return says === "nothing" || says === "no answer" ? "unknown" : "differ"
}

/** Compares the payment with what the gateway says of its charge and of its refund. */
export const compare = (payment: OpenPayment, charge: Finding, refund: Finding): Verdict => {
  const [ofCharge, ofRefund] = [chargeVerdict(payment, charge), refundVerdict(payment, refund)]
  if (ofCharge === "differ" || ofRefund === "differ") return "differ"
  // A look-up does not tell of disputes.
  return ofCharge === "agree" && ofRefund === "agree" && payment.status !== "manual" ? "agree" : "unknown"
}

/**
 * The outcomes that an operator may name where the gateway's look-up does not decide. A refund that was asked for was promised to the customer: it
 * ends as refunded.
 */
export const nameable = ({ capturedMinor, refundAgeMillis }: OpenPayment): ReadonlyArray<Outcome> =>
  capturedMinor === 0 ? ["captured", "declined"] : refundAgeMillis === null ? ["captured", "refunded"] : ["refunded"]

/**
 * The outcome that settles a `manual` payment, or why there is none yet. `finding` is of its charge where nothing is captured, else of its refund.
 *
 * A charge or refund that the gateway has made counts, whatever the operator says. "Nothing" decides nothing: the gateway forgets keys, and a
 * request may still be on its way. Then the operator has to say it, and without any answer of the gateway to say that, too.
 */
export const decide = (
  payment: OpenPayment,
  { says, words }: Finding,
  named: Outcome | undefined,
  withoutGateway: boolean
): Result.Result<Outcome, string> => {
  const choice = nameable(payment)
  if (says === "captured" || says === "declined" || says === "refunded") {
    return named === undefined || named === says
      ? Result.succeed(says)
      : Result.fail(`can't be settled as ${named}: ${words}`)
  }
  if (says === "no answer" && !(withoutGateway && named !== undefined)) {
    return Result.fail(
      `can't be settled now: ${words}. Try again, or say what you know, and that it is without the gateway`
    )
  }
  if (named === undefined)
    return Result.fail(`needs your word: ${words}. Find out there, and say that it was ${choice.join(" or ")}`)
  if (!choice.includes(named)) {
    return Result.fail(`can't be settled as ${named}: it may become ${choice.join(" or ")}`)
  }
  return says === "another amount" && named === "captured"
    ? Result.fail(`can't be settled as captured: ${words}`)
    : Result.succeed(named)
}
