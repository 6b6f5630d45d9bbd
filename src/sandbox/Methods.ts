/** How the sandbox gateway treats a payment method. */
import type { Mode } from "../http/admin/GatewayBehaviour.ts"

export interface Treatment {
  /** Why it is declined; null captures. */
  readonly declineReason: string | null
  /** The fault of the first request with a key; `every`: what all of them do. */
  readonly first: Mode
  readonly every: Mode
}

const captured: Treatment = { declineReason: null, first: "normal", every: "normal" }

/** A map: an object would also find `constructor`, which a client may send. */
const treatments: ReadonlyMap<string, Treatment> = new Map([
  ["pm_ok", captured],
  ["pm_declined", { ...captured, declineReason: "insufficient funds" }],
  ["pm_slow", { ...captured, every: "slow" }],
  // Captured, without an answer.
  ["pm_timeout_then_captured", { ...captured, first: "timeout-after" }],
  // No answer, and no charge: a repeated request with the key is charged.
  ["pm_timeout_then_nothing", { ...captured, first: "timeout" }],
  ["pm_flaky", { ...captured, first: "error" }]
])

export const treatmentOf = (paymentMethod: string): Treatment =>
  treatments.get(paymentMethod) ?? { ...captured, declineReason: "unknown payment method" }
