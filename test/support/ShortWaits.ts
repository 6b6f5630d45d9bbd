/** A clock on which long waits never end. A test that passes on it shows that no slow poll did the work. */
import { Clock, Duration, Effect } from "effect"

/** Runs `effect`, and all fibers that it forks, on the present clock. Waits longer than `longest` never end. */
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
