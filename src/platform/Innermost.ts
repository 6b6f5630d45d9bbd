/** The innermost cause of an error. */
import { Formatter } from "effect"

/** Errors are wrapped a few times on their way; a longer chain is circular. */
export const maxDepth = 8

/** The message of the innermost cause: the driver wraps the message of the network or of Postgres, and only that one tells what to repair. */
export const innermost = (error: unknown, depth = 0): string =>
  error instanceof Error && error.cause !== undefined && error.cause !== null && depth < maxDepth
    ? innermost(error.cause, depth + 1)
    : error instanceof AggregateError && depth < maxDepth
      ? error.errors.map((one) => innermost(one, depth + 1)).join("; ")
      : error instanceof Error
        ? error.message || error.name
        : typeof error === "string"
          ? error
          : // `String` would throw at an object without a prototype.
            Formatter.format(error)
