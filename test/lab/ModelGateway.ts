/**
 * A payment gateway in memory: it charges once for a key as long as it knows it, remembers what it was told, and can keep its answers to
 * itself.
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

/** What the gateway reports by itself, once it has happened: the body of a webhook. */
export interface Fact {
  readonly type: "charge.captured" | "charge.declined" | "refund.made"
  /** The charge's key, or the refund's. */
  readonly key: string
  readonly payment: string
  readonly reason?: string
}

/** A request that is not answered: `before` anything is done, or `after` that. Whoever looks something up hears nothing either way. */
export type GatewayFault = "before" | "after"

/** A key is known for so long, as CONTRACT's default has it. */
export const keyRetentionMillis = 86_400_000

export class ModelGatewayState {
  readonly captures: Array<Capture> = []
  readonly refunds: Array<Capture> = []
  readonly facts: Array<Fact> = []
  /** What befalls the next requests. */
  readonly faults: Array<GatewayFault> = []
  private readonly keys = new Map<string, { readonly outcome: ChargeOutcome | RefundOutcome; readonly at: number }>()
  private readonly tries = new Map<string, number>()
  private readonly nowMillis: () => number

  constructor(nowMillis: () => number) {
    this.nowMillis = nowMillis
  }

  /** What the key stands for, as long as it is known. */
  known(key: string): ChargeOutcome | RefundOutcome | undefined {
    const found = this.keys.get(key)
    return found !== undefined && this.nowMillis() - found.at < keyRetentionMillis ? found.outcome : undefined
  }

  private remember(key: string, outcome: ChargeOutcome | RefundOutcome): void {
    this.keys.set(key, { outcome, at: this.nowMillis() })
  }

  /** How often the key was asked for; 1 for the first time. */
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
    this.remember(paymentId, { _tag: "Captured" })
    this.captures.push({ key: paymentId, amountMinor: amount.amountMinor })
    this.facts.push({ type: "charge.captured", ...fact })
    return { _tag: "Captured" }
  }

  refund({ amount, paymentId }: Refund): RefundOutcome {
    const key = refundKeyOf(paymentId)
    const known = this.known(key) as RefundOutcome | undefined
    if (known !== undefined) return known
    const left = (all: ReadonlyArray<Capture>) =>
      all.reduce((total, one) => (one.key === paymentId ? total + one.amountMinor : total), 0)
    // No key is remembered for a refusal: it says how things stand now.
    if (left(this.captures) - left(this.refunds) < amount.amountMinor) {
      return { _tag: "Refused", reason: "that much of the charge is not left" }
    }
    this.remember(key, { _tag: "Refunded" })
    this.refunds.push({ key: paymentId, amountMinor: amount.amountMinor })
    this.facts.push({ type: "refund.made", key, payment: paymentId })
    return { _tag: "Refunded" }
  }
}

const noAnswer = new OutcomeUnknown({ reason: "no answer in time" })

export const layer = (state: ModelGatewayState, gate: (label: string) => Effect.Effect<void>): Layer.Layer<Gateway> => {
  /** Does it, and answers, as the next fault and `first`, which befalls the key's first try, let it. */
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
