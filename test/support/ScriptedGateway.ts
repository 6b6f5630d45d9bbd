/** A gateway in memory. A test can make it wait, fail and forget keys, and reads from it what was captured and refunded, and every call. */
import { Effect, Layer, Option } from "effect"
import { type ChargeOutcome, Gateway, OutcomeUnknown } from "../../src/application/Gateway.ts"
import { refundKeyOf } from "../../src/domain/Payment.ts"

/** A moment of a call: before its effect, or before its answer. */
export type Moment = `${"before" | "after"} ${"charge" | "lookUpCharge" | "refund" | "lookUpRefund"}`

export class ScriptedGateway {
  /** The outcomes that it remembers, by key. */
  readonly charges = new Map<string, ChargeOutcome>()
  readonly refunds = new Map<string, number>()
  /** Keys in the order of the calls. */
  readonly calls: Array<{ readonly call: string; readonly key: string }> = []
  /** Payments whose money has moved, also after their keys were forgotten. */
  readonly captured: Array<string> = []
  readonly given: Array<string> = []
  /** What the answers about charges say that was captured; nothing, as an old gateway. */
  amount: { readonly amountMinor?: unknown; readonly currency?: unknown } = {}
  private readonly script = new Map<Moment, Array<Effect.Effect<void, OutcomeUnknown>>>()

  /** Runs `effects` at the next calls of this kind, one for each. */
  next(moment: Moment, ...effects: ReadonlyArray<Effect.Effect<void, OutcomeUnknown>>) {
    this.script.set(moment, [...(this.script.get(moment) ?? []), ...effects])
  }

  /** Forgets all keys, as after their retention. */
  forget() {
    this.charges.clear()
    this.refunds.clear()
  }

  /** A person refunds the whole charge at the gateway. */
  refundThere(paymentId: string) {
    this.given.push(paymentId)
  }

  callsOf(call: string): ReadonlyArray<string> {
    return this.calls.flatMap((made) => (made.call === call ? [made.key] : []))
  }

  private at(moment: Moment): Effect.Effect<void, OutcomeUnknown> {
    return Effect.suspend(() => this.script.get(moment)?.shift() ?? Effect.void)
  }

  private call<A>(call: "charge" | "lookUpCharge" | "refund" | "lookUpRefund", key: string, act: () => A) {
    return Effect.gen({ self: this }, function* () {
      this.calls.push({ call, key })
      yield* this.at(`before ${call}`)
      const result = act()
      yield* this.at(`after ${call}`)
      return result
    })
  }

  readonly layer: Layer.Layer<Gateway> = Layer.succeed(Gateway, {
    charge: ({ paymentId, paymentMethod }) =>
      this.call("charge", paymentId, () => {
        const known = this.charges.get(paymentId)
        if (known !== undefined) return known
        const outcome: ChargeOutcome =
          paymentMethod === "pm_declined"
            ? { _tag: "Declined", reason: "insufficient funds" }
            : { _tag: "Captured", ...this.amount }
        this.charges.set(paymentId, outcome)
        if (outcome._tag === "Captured") this.captured.push(paymentId)
        return outcome
      }),
    lookUpCharge: (paymentId) =>
      this.call("lookUpCharge", paymentId, () => Option.fromNullishOr(this.charges.get(paymentId))),
    refund: ({ amount, paymentId }) =>
      this.call("refund", refundKeyOf(paymentId), () => {
        if (!this.captured.includes(paymentId)) return { _tag: "Refused" as const, reason: "nothing was captured" }
        if (!this.refunds.has(paymentId)) {
          if (this.given.includes(paymentId)) return { _tag: "Refused" as const, reason: "nothing is left" }
          this.refunds.set(paymentId, amount.amountMinor)
          this.given.push(paymentId)
        }
        return { _tag: "Refunded" as const }
      }),
    lookUpRefund: (paymentId) =>
      this.call("lookUpRefund", refundKeyOf(paymentId), () =>
        this.refunds.has(paymentId) ? Option.some({ _tag: "Refunded" as const }) : Option.none()
      )
  })
}

/** No answer. */
export const silence = Effect.fail(new OutcomeUnknown({ reason: "no answer in time" }))
