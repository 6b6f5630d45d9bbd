/** Judges a failure: is the event to blame, or is something it needs unavailable? */
import { Cause, Schema } from "effect"
import { SqlError } from "effect/sql"
import { FaultInjected } from "../platform/FaultInjection.ts"
import { innermost, maxDepth } from "../platform/Innermost.ts"
import { isOutage, isOwnFault } from "../platform/DatabaseOutage.ts"
import { DependencyDown, PermanentFailure } from "./Subscriber.ts"

export type Verdict =
  /** Nothing failed: the partition went to another member, or the process ends. */
  | { readonly _tag: "Interrupted" }
  /** The database or a dependency is unavailable, or two transactions conflicted. The event is not to blame. */
  | { readonly _tag: "Transient" }
  /** The event is to blame. `isPermanent`: another attempt can't help. */
  | { readonly _tag: "Failed"; readonly error: string; readonly isPermanent: boolean }

/** Characters that are kept of an error's text: a sentence is shorter, a schema's list of all that is wrong longer. */
export const errorLength = 500

/** The error and the chain of its causes: handlers wrap the errors that they get. */
export const causes = (error: unknown, depth = 0): ReadonlyArray<unknown> =>
  depth < maxDepth && error instanceof Error && error.cause !== undefined
    ? [error, ...causes(error.cause, depth + 1)]
    : [error]

const isTransient = (error: unknown): boolean =>
  error instanceof DependencyDown ||
  error instanceof FaultInjected ||
  isOutage(error) ||
  (SqlError.isSqlError(error) &&
    !isOwnFault(error) &&
    (error.isRetryable || error.reason._tag === "AuthenticationError"))

const isPermanent = (error: unknown): boolean => error instanceof PermanentFailure || Schema.isSchemaError(error)

const textOf = (error: unknown): string => {
  // Postgres stores no text with a NUL in it.
  return innermost(error).replaceAll("\0", "\uFFFD").slice(0, errorLength)
}

/** The verdict on a slice or an attempt that ended with this cause. */
export const judge = (cause: Cause.Cause<unknown>): Verdict => {
  const errors = cause.reasons.flatMap((reason): ReadonlyArray<unknown> =>
    reason._tag === "Fail" ? [reason.error] : reason._tag === "Die" ? [reason.defect] : []
  )
  if (errors.length === 0) return { _tag: "Interrupted" }
  if (errors.flatMap((error) => causes(error)).some(isTransient)) return { _tag: "Transient" }
  return { _tag: "Failed", error: textOf(errors[0]), isPermanent: isPermanent(errors[0]) }
}
