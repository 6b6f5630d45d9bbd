/** A clock on which long waits never end: what comes about on it was not brought by a poll or another net that comes later by itself. */
import { Clock, Duration, Effect } from "effect"

/** Runs `effect`, and all that it forks, on the present clock, but for waits longer than `longest`: those are for ever. */
export const upTo =
  (longest: Duration.Input) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.clockWith((clock) =>
      Effect.provideService(effect, Clock.Clock, {
        currentTimeMillis: clock.currentTimeMillis,
        currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe(),
        currentTimeNanos: clock.currentTimeNanos,
        currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe(),
        monotonicTimeNanos: clock.monotonicTimeNanos,
        monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
        sleep: (duration) =>
          Duration.isGreaterThan(duration, Duration.fromInputUnsafe(longest)) ? Effect.never : clock.sleep(duration)
      })
    )
