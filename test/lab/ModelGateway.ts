/** A payment gateway in memory: it charges once for a key, remembers what it was told, and can keep its answer to itself. */
import { Effect, Layer, Option } from "effect"
import { type Charge, type ChargeOutcome, Gateway, OutcomeUnknown } from "../../src/application/Gateway.ts"

/** Money that moved. `order` is what the client was paying for, which the real gateway would not know. */
export interface Capture {
  readonly key: string
  readonly order: string
  readonly amountMinor: number
}

export class ModelGatewayState {
  readonly outcomes = new Map<string, ChargeOutcome>()
  readonly captures: Array<Capture> = []
  /** Amounts that were given back, by the payment's id. */
  readonly refunds = new Map<string, number>()
}

/** As one client has it: `order` tells what that client is paying for now. */
export const layer = (
  state: ModelGatewayState,
  gate: (label: string) => Effect.Effect<void>,
  order: () => string
): Layer.Layer<Gateway> =>
  Layer.succeed(Gateway, {
    charge: ({ amount, paymentId, paymentMethod }: Charge) =>
      Effect.gen(function* () {
        yield* gate("charge at the gateway")
        const known = state.outcomes.get(paymentId)
        const outcome: ChargeOutcome =
          known ??
          (paymentMethod === "pm_declined" ? { _tag: "Declined", reason: "insufficient_funds" } : { _tag: "Captured" })
        state.outcomes.set(paymentId, outcome)
        if (known === undefined && outcome._tag === "Captured") {
          state.captures.push({ key: paymentId, order: order(), amountMinor: amount.amountMinor })
        }
        yield* gate("the gateway's answer")
        // Only the first answer is lost: whoever asks again gets it.
        if (known === undefined && paymentMethod === "pm_timeout_then_captured") {
          return yield* new OutcomeUnknown({ reason: "no answer in time" })
        }
        return outcome
      }),
    lookUpCharge: (paymentId) =>
      Effect.andThen(
        gate("look the charge up"),
        Effect.sync(() => Option.fromNullishOr(state.outcomes.get(paymentId)))
      ),
    refund: ({ amount, paymentId }) =>
      Effect.gen(function* () {
        yield* gate("refund at the gateway")
        const refunded = state.refunds.get(paymentId)
        if (refunded === undefined) {
          if (state.outcomes.get(paymentId)?._tag !== "Captured") {
            return { _tag: "Refused" as const, reason: `there is no captured charge ${paymentId}` }
          }
          state.refunds.set(paymentId, amount.amountMinor)
        }
        yield* gate("the gateway's answer")
        return { _tag: "Refunded" as const }
      }),
    lookUpRefund: (paymentId) =>
      Effect.andThen(
        gate("look the refund up"),
        Effect.sync(() => (state.refunds.has(paymentId) ? Option.some({ _tag: "Refunded" as const }) : Option.none()))
      )
  })
