/** What an error says at its bottom. */

/** Errors are wrapped a few times on their way; a chain that is longer has a ring in it. */
export const maxDepth = 8

/** The message at the bottom: the driver wraps what the network or Postgres said, and only that tells what to mend. */
export const innermost = (error: unknown, depth = 0): string =>
  error instanceof Error && error.cause !== undefined && error.cause !== null && depth < maxDepth
    ? innermost(error.cause, depth + 1)
    : error instanceof AggregateError && depth < maxDepth
      ? error.errors.map((one) => innermost(one, depth + 1)).join("; ")
      : error instanceof Error
        ? error.message || error.name
        : String(error)
