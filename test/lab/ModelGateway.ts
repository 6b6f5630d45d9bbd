/**
 * A payment gateway in memory. It charges once per key for as long as it remembers the key, stores its outcomes, and can withhold its
 * answers.
 */
import { Effect, Layer, Option } from "effect"
import {
  type Charge,
  type ChargeOutcome,
  Gateway,
  OutcomeUnknown,
  type Refund,
  type RefundOutcome
} from "../../src/application/Gateway.ts"
import { refundKeyOf } from "../../src/domain/Payment.ts"

/** Money that moved. */
export interface Capture {
  readonly key: string
  readonly amountMinor: number
}

/** A report of the gateway about something that has happened: the body of a webhook. */
export interface Fact {
  readonly type: "charge.captured" | "charge.declined" | "refund.made"
  /** The charge's key, or the refund's. */
  readonly key: string
  readonly payment: string
  readonly reason?: string
}

/** A request without an answer: `before` the gateway has done anything, or `after` it. A look-up has no answer in either case. */
export type GatewayFault = "before" | "after"

/** The retention of a key, the default of `Gateway`'s contract. */
export const keyRetentionMillis = 86_400_000

export class ModelGatewayState {
  readonly captures: Array<Capture> = []
  readonly refunds: Array<Capture> = []
  readonly facts: Array<Fact> = []
  /** The faults of the next requests. */
  readonly faults: Array<GatewayFault> = []
  private readonly keys = new Map<string, { readonly outcome: ChargeOutcome | RefundOutcome; readonly at: number }>()
  private readonly tries = new Map<string, number>()
  private readonly nowMillis: () => number

  constructor(nowMillis: () => number) {
    this.nowMillis = nowMillis
  }

  /** The outcome stored under the key, while the key is remembered. */
  known(key: string): ChargeOutcome | RefundOutcome | undefined {
    const found = this.keys.get(key)
    return found !== undefined && this.nowMillis() - found.at < keyRetentionMillis ? found.outcome : undefined
  }

  private remember(key: string, outcome: ChargeOutcome | RefundOutcome): void {
    this.keys.set(key, { outcome, at: this.nowMillis() })
  }

  /** How often the key was used; 1 for the first time. */
  tryOf(key: string): number {
    const count = (this.tries.get(key) ?? 0) + 1
    this.tries.set(key, count)
    return count
  }

  charge({ amount, paymentId, paymentMethod }: Charge): ChargeOutcome {
    const known = this.known(paymentId) as ChargeOutcome | undefined
    if (known !== undefined) return known
    const fact = { key: paymentId, payment: paymentId }
    if (paymentMethod === "pm_declined") {
      const outcome: ChargeOutcome = { _tag: "Declined", reason: "insufficient_funds" }
      this.remember(paymentId, outcome)
      this.facts.push({ type: "charge.declined", ...fact, reason: outcome.reason })
      return outcome
    }
    const captured: ChargeOutcome = { _tag: "Captured", ...amount }
    this.remember(paymentId, captured)
    this.captures.push({ key: paymentId, amountMinor: amount.amountMinor })
    this.facts.push({ type: "charge.captured", ...fact })
    return captured
  }

  refund({ amount, paymentId }: Refund): RefundOutcome {
    const key = refundKeyOf(paymentId)
    const known = this.known(key) as RefundOutcome | undefined
    if (known !== undefined) return known
    const left = (all: ReadonlyArray<Capture>) =>
      all.reduce((total, one) => (one.key === paymentId ? total + one.amountMinor : total), 0)
    // A refusal is not stored under the key: it depends on what is left at that moment.
    if (left(this.captures) - left(this.refunds) < amount.amountMinor) {
      return { _tag: "Refused", reason: "that much of the charge is not left" }
    }
    const refunded: RefundOutcome = { _tag: "Refunded", ...amount }
    this.remember(key, refunded)
    this.refunds.push({ key: paymentId, amountMinor: amount.amountMinor })
    this.facts.push({ type: "refund.made", key, payment: paymentId })
    return refunded
  }

  /** A person refunds the whole charge at the gateway, without any key of the service. */
  refundThere(paymentId: string): void {
    const capture = this.captures.find(({ key }) => key === paymentId)
    if (capture !== undefined) this.refunds.push(capture)
  }
}

const noAnswer = new OutcomeUnknown({ reason: "no answer in time" })

export const layer = (state: ModelGatewayState, gate: (label: string) => Effect.Effect<void>): Layer.Layer<Gateway> => {
  /** Carries out the request and answers it, unless the next fault prevents that. `first` is the fault of the key's first request. */
  const ask = <A>(label: string, key: string, first: GatewayFault | undefined, make: () => A) =>
    Effect.gen(function* () {
      yield* gate(label)
      const isFirst = state.tryOf(key) === 1
      const fault = state.faults.shift() ?? (isFirst ? first : undefined)
      if (fault === "before") return yield* noAnswer
      const outcome = make()
      yield* gate("the gateway's answer")
      return fault === "after" ? yield* noAnswer : outcome
    })
  const lookUp = (label: string, key: string) =>
    Effect.gen(function* () {
      yield* gate(label)
      return state.faults.shift() === undefined ? Option.fromNullishOr(state.known(key)) : yield* noAnswer
    })
  return Layer.succeed(Gateway, {
    charge: (charge) =>
      ask("charge at the gateway", charge.paymentId, firstFaults[charge.paymentMethod], () => state.charge(charge)),
    lookUpCharge: (paymentId) =>
      lookUp("look the charge up", paymentId) as Effect.Effect<Option.Option<ChargeOutcome>, OutcomeUnknown>,
    refund: (refund) =>
      ask("refund at the gateway", refundKeyOf(refund.paymentId), undefined, () => state.refund(refund)),
    lookUpRefund: (paymentId) =>
      lookUp("look the refund up", refundKeyOf(paymentId)) as Effect.Effect<
        Option.Option<RefundOutcome>,
        OutcomeUnknown
      >
  })
}

const firstFaults: Readonly<Record<string, GatewayFault>> = {
  pm_timeout_then_captured: "after",
  pm_timeout_then_nothing: "before"
}
