/** Tells an outage of the database from a fault of the statement: it passes by itself, and nobody who asked is to blame. */
import { Cause } from "effect"
import { SqlError } from "effect/sql"
import { innermost } from "./Innermost.ts"
import type { Outage } from "./Outages.ts"

/**
 * Classes of SQLSTATE that pass by themselves: connection (08), refused login (28), insufficient resources such as a full disk (53), operator intervention
 * such as a restart (57), and system error (58). A password that was changed is set again by an
 * operator, and no caller is to blame. A server that has become a standby, or may only be read for want of space, says 25006.
 */
const passing = /^(?:08|28|53|57|58)|^25006$/

/**
 * The codes of these classes that tell a fault of the statement. Others are served meanwhile, and the same statement fails the next time, too:
 * an event that waited for it to pass would block its partition for ever.
 *
 * All others pass. A few of them can be a statement's fault, too: 53200 of one that needs too much memory, 58P01 of one that names a file. Mostly the
 * server is short of memory, or damaged. Then parking an innocent event costs more than waiting. 08P01 is a wrong message as a rule, but PgBouncer
 * says it of each outage behind it.
 */
const ownFaults: ReadonlySet<string> = new Set([
  // query_canceled, mostly by statement_timeout: the statement takes too long.
  "57014",
  // configuration_limit_exceeded: the statement exceeds `temp_file_limit`, which bounds each session by itself.
  "53400"
])

/** The SQLSTATE of Postgres' answer; "" where it gave none. */
export const sqlStateOf = ({ reason }: SqlError.SqlError): string => {
  const { cause } = reason
  return typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : ""
}

/** Whether the statement is at fault, though its code is of a class that passes by itself. */
export const isOwnFault = (error: SqlError.SqlError): boolean => ownFaults.has(sqlStateOf(error))

/** Whether the database can't be reached, or can't do its work for now. */
export const isOutage = (error: unknown): error is SqlError.SqlError =>
  SqlError.isSqlError(error) &&
  !isOwnFault(error) &&
  (error.reason._tag === "ConnectionError" || passing.test(sqlStateOf(error)))

/** The outage in a cause, whether the error was expected or had become a defect. */
export const inCause = (cause: Cause.Cause<unknown>): SqlError.SqlError | undefined => {
  for (const reason of cause.reasons) {
    const error = reason._tag === "Die" ? reason.defect : reason._tag === "Fail" ? reason.error : undefined
    if (isOutage(error)) return error
  }
  return undefined
}

/** A failure of the database, as it is told in the log. */
export const told = (cause: Cause.Cause<unknown>): Outage | undefined => {
  const error = inCause(cause)
  return error && outageOf(error)
}

/** The outage of the database that this error tells. */
export const outageOf = (error: SqlError.SqlError): Outage => ({
  subject: "the database",
  reason: wordsOf(error),
  kind: sqlStateOf(error)
})

/** What Postgres said, with its SQLSTATE: `could not extend file …: No space left on device (53100)`. */
export const wordsOf = (error: SqlError.SqlError): string => {
  const state = sqlStateOf(error)
  return state === "" ? innermost(error) : `${innermost(error)} (${state})`
}
