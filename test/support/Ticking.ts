/** Runs loops whose waits are minutes on a clock that the test moves. The database, and the test's own waits, use real time. */
import { Clock, type Duration, Effect } from "effect"
import { TestClock } from "effect/testing"
import { eventually } from "./Counters.ts"

/** Starts `loop` on a clock of its own, which only {@link Ticking.until} moves. */
export const start = Effect.fnUntraced(function* <A, E, R>(loop: Effect.Effect<A, E, R>) {
  const clock = yield* TestClock.make()
  yield* Effect.provideService(loop, Clock.Clock, clock)
  return {
    /** Lets `wait` pass for the loop, again and again, until `condition` holds. */
    until: <E2, R2>(what: string, wait: Duration.Input, condition: Effect.Effect<boolean, E2, R2>) =>
      eventually(what, Effect.andThen(clock.adjust(wait), condition))
  }
})
