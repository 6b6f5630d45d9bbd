/** The sender of a request: a program by its API key, or a person by a session of the console. */
import { Context } from "effect"
import type { Problem } from "../Problems.ts"

/** What a caller may do. `operator` includes the others. `customer` has orders and payments, `viewer` the reads of these and under /admin. */
export type Scope = "customer" | "viewer" | "operator"

/**
 * A key names a program, such as a shop's backend, and not one of its customers. The name is the owner of the request's idempotency keys,
 * and stands in the log. A request without a valid credential has {@link anonymousName}, and no scope where keys are required.
 */
export interface Caller {
  readonly name: string
  readonly scope: Scope | undefined
  /** Whether an API key, ADMIN_TOKEN or a session proves the name. */
  readonly isProven: boolean
  /** Whether it may change something under /admin. */
  readonly canWrite: boolean
  /** Why the session of the request does not count: the answer of each route that needs a scope. */
  readonly refusal?: Problem
}

/** No key may have this name: its idempotency keys are those of everybody without a key. */
export const anonymousName = "anonymous"

/** The name of the owner of ADMIN_TOKEN, or of the start's link. No key may have it: the audit would not tell the two apart. */
export const adminName = "admin"

/** A caller whose name is proven. */
export const proven = ({ name, scope }: { readonly name: string; readonly scope: Scope }): Caller => ({
  name,
  scope,
  isProven: true,
  canWrite: scope === "operator"
})

/** A caller without a valid credential. Under /admin it may do nothing, whatever its scope. */
export const anonymous = (scope: Scope | undefined): Caller => ({
  name: anonymousName,
  scope,
  isProven: false,
  canWrite: false
})

/** A caller whose session does not count: it reaches what is open, and gets this answer elsewhere. */
export const refused = (refusal: Problem): Caller => ({
  name: anonymousName,
  scope: undefined,
  isProven: false,
  canWrite: false,
  refusal
})

/** The caller of the request that is being answered. */
export const Caller = Context.Reference<Caller>("paid-once/http/Caller", { defaultValue: () => anonymous(undefined) })
