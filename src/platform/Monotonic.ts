/**
 * How long something takes, or has still to wait: milliseconds of a clock that nobody sets.
 *
 * The wall clock is one that its machine's owner, or a time server, may set back, and what waits until one of its moments waits for that much
 * longer. It is for what others read: a record's timestamp, a signature's age, a difference to the database's clock.
 */
import { Clock, Effect } from "effect"

/** Of no meaning but in comparison with another one of this process. */
export const millis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

/** The same, for code that is no effect. */
export const millisUnsafe = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
