/** What a failure says: of the event, or of the moment. */
import { Cause, Schema } from "effect"
import { SqlError } from "effect/sql"
import { FaultInjected } from "../platform/Faults.ts"
import { innermost, maxDepth } from "../platform/Innermost.ts"
import { DependencyDown, EventRefused } from "./Subscriber.ts"

export type Verdict =
  /** Nobody failed: the partition went to another member, or the process ends. */
  | { readonly _tag: "Interrupted" }
  /** The database or a dependency is away, or two transactions were in each other's way. Nothing is wrong with the event. */
  | { readonly _tag: "Transient" }
  /** The event is to blame. `isFinal`: trying again can't help. */
  | { readonly _tag: "Failed"; readonly error: string; readonly isFinal: boolean }

/** Of an error's text: a sentence is shorter, and a schema's list of everything that is wrong longer. */
export const errorLength = 500

/**
 * States of Postgres that pass: no resources (53), ended by an operator or not up yet (57), trouble with its disk (58), a connection (08),
 * a server that has become a standby (25006).
 */
const passing = /^(?:53|57|58|08)|^25006$/

/** Postgres cancelled the statement, mostly by statement_timeout: it takes too long, and will the next time, too. */
const cancelled = "57014"

const codeOf = (error: SqlError.SqlError): string => {
  const { cause } = error.reason
  return typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : ""
}

/** The error, what it says caused it, and so on: handlers wrap what they are told. */
export const causes = (error: unknown, depth = 0): ReadonlyArray<unknown> =>
  depth < maxDepth && error instanceof Error && error.cause !== undefined
    ? [error, ...causes(error.cause, depth + 1)]
    : [error]

const isTransient = (error: unknown): boolean =>
  error instanceof DependencyDown ||
  error instanceof FaultInjected ||
  (SqlError.isSqlError(error) &&
    codeOf(error) !== cancelled &&
    (error.isRetryable || error.reason._tag === "AuthenticationError" || passing.test(codeOf(error))))

const isRefusal = (error: unknown): boolean => error instanceof EventRefused || Schema.isSchemaError(error)

const textOf = (error: unknown): string => {
  // Postgres has no text with a NUL in it.
  return innermost(error).replaceAll("\0", "\uFFFD").slice(0, errorLength)
}

export const judge = (cause: Cause.Cause<unknown>): Verdict => {
  const errors = cause.reasons.flatMap((reason): ReadonlyArray<unknown> =>
    reason._tag === "Fail" ? [reason.error] : reason._tag === "Die" ? [reason.defect] : []
  )
  if (errors.length === 0) return { _tag: "Interrupted" }
  if (errors.flatMap((error) => causes(error)).some(isTransient)) return { _tag: "Transient" }
  return { _tag: "Failed", error: textOf(errors[0]), isFinal: isRefusal(errors[0]) }
}
