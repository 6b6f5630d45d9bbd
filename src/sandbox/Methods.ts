/** What the sandbox gateway makes of a payment method. */
import type { Mode } from "./Behaviour.ts"

export interface Treatment {
  /** Why it is declined; null captures. */
  readonly declineReason: string | null
  /** What the first request with a key suffers; `every`: what all of them do. */
  readonly first: Mode
  readonly every: Mode
}

const captured: Treatment = { declineReason: null, first: "normal", every: "normal" }

const treatments: Readonly<Record<string, Treatment>> = {
  pm_ok: captured,
  pm_declined: { ...captured, declineReason: "insufficient funds" },
  pm_slow: { ...captured, every: "slow" },
  // Captured, and the answer never comes.
  pm_timeout_then_captured: { ...captured, first: "timeout-after" },
  // No answer, and nothing was done: whoever asks again with the key is charged then.
  pm_timeout_then_nothing: { ...captured, first: "timeout" },
  pm_flaky: { ...captured, first: "error" }
}

export const treatmentOf = (paymentMethod: string): Treatment =>
  treatments[paymentMethod] ?? { ...captured, declineReason: "unknown payment method" }
