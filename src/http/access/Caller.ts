/** Who sends a request: the program whose API key it carries. */
import { Context } from "effect"

/** What a caller may do. `operator` includes `customer`. */
export type Scope = "customer" | "operator"

/**
 * A key names a program, such as a shop's backend, and not one of its customers. The name is the owner of the request's idempotency keys,
 * and stands in the log. A request without a valid key has {@link anonymousName}, and no scope where keys are required.
 */
export interface Caller {
  readonly name: string
  readonly scope: Scope | undefined
  /** Whether an API key proves the name. */
  readonly hasKey: boolean
}

/** No key may have this name: its idempotency keys are those of everybody without a key. */
export const anonymousName = "anonymous"

/** The caller of the request that is being answered. */
export const Caller = Context.Reference<Caller>("paid-once/http/Caller", {
  defaultValue: () => ({ name: anonymousName, scope: undefined, hasKey: false })
})
