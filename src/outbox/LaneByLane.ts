/** Repeats a statement that failed for many lanes, and stops the lanes that fail alone. */
import { type Cause, Effect } from "effect"
import { SqlError } from "effect/sql"
import * as DatabaseOutage from "../platform/DatabaseOutage.ts"
import type { Lane } from "./Lane.ts"

const failedBy = (cause: Cause.Cause<unknown>, ...tags: ReadonlyArray<SqlError.SqlErrorReason["_tag"]>) =>
  cause.reasons.some((reason) => {
    const error: unknown = reason._tag === "Die" ? reason.defect : reason._tag === "Fail" ? reason.error : undefined
    return SqlError.isSqlError(error) && tags.includes(error.reason._tag)
  })

/**
 * Returns a function that runs an action for many lanes.
 *
 * If the action fails for several lanes, it is repeated for each of them, and a lane that fails alone stops. If the statement of one lane alone times
 * out, the lanes behind it stop untried. Everything waits meanwhile, so a slow database costs two timeouts and not one for each lane. The stopped
 * lanes are tried again after waits of their own. Marks that are late for that reason are tried one after the other, on one connection.
 *
 * An outage of the database stops no lane: the whole action fails.
 */
export const make = (options: {
  readonly isStopping: () => boolean
  /** Stops the lane until its wait is over. */
  readonly fail: (lane: Lane, cause: Cause.Cause<unknown>) => Effect.Effect<void>
}) => {
  const eachAlone = <A>(
    all: ReadonlyArray<A>,
    laneOf: (one: A) => Lane,
    run: (some: ReadonlyArray<A>) => Effect.Effect<void>,
    failedAlone: (one: A) => void = () => undefined,
    isLastTry = false
  ): Effect.Effect<void> => {
    if (all.length === 0) return Effect.void
    return Effect.catchCause(run(all), (cause) => {
      const isLost = DatabaseOutage.inCause(cause) !== undefined
      if (isLost && !options.isStopping()) return Effect.failCause(cause)
      // A stop tries all of it once more, on a new connection: to wait for one as often as there are lanes might take minutes.
      if (isLost && !isLastTry) return eachAlone(all, laneOf, run, failedAlone, true)
      if (!isLost && all.length > 1) {
        let timeout: Cause.Cause<never> | undefined
        const alone = (some: ReadonlyArray<A>) =>
          Effect.tapCause(timeout === undefined ? run(some) : Effect.failCause(timeout), (its) =>
            Effect.sync(() => (timeout = failedBy(its, "StatementTimeoutError", "LockTimeoutError") ? its : undefined))
          )
        return Effect.forEach(all, (one) => eachAlone([one], laneOf, alone, failedAlone, isLastTry), { discard: true })
      }
      return Effect.forEach(
        all,
        (one) => {
          failedAlone(one)
          return options.fail(laneOf(one), cause)
        },
        { discard: true }
      )
    })
  }
  return eachAlone
}
