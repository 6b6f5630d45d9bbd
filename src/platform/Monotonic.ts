/**
 * Milliseconds of a clock that nobody sets, for durations and waits.
 *
 * An administrator or a time server may set the wall clock back, and a wait until a time of that clock then takes longer. The wall clock is for
 * times that others read: a record's timestamp, a signature's age.
 */
import { Clock, Effect } from "effect"

/** Only differences within one process have a meaning. */
export const millis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

/** {@link millis} for plain code. */
export const millisUnsafe = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
