/** Loops whose waits are minutes, run under a clock that the test moves. The database, and whatever the test waits for, goes by real time. */
import { Clock, type Duration, Effect } from "effect"
import { TestClock } from "effect/testing"
import { eventually } from "./Counters.ts"

/** Starts `loop` under a clock of its own, which stands still until {@link Ticking.until} moves it. */
export const start = Effect.fnUntraced(function* <A, E, R>(loop: Effect.Effect<A, E, R>) {
  const clock = yield* TestClock.make()
  yield* Effect.provideService(loop, Clock.Clock, clock)
  return {
    /** Lets `wait` pass for the loop, again and again, until `condition` holds. */
    until: <E2, R2>(what: string, wait: Duration.Input, condition: Effect.Effect<boolean, E2, R2>) =>
      eventually(what, Effect.andThen(clock.adjust(wait), condition))
  }
})
