/**
 * How long turns wait, so that each takes more along.
 *
 * A fetch, a send and a mark for each event would cost several times as much as for a few events together.
 *
 * - A turn waits for sends in flight, as Nagle's algorithm gathers bytes. The time of an acknowledgement is the measure: a fast broker leaves little to
 *   gather, and a slow one much.
 * - Fetches are kept apart, which bounds their number in a second. An event that comes after a pause waits for nothing.
 * - Acknowledgements wait for the next fetch, whose packet takes their mark along. After a crash such events are sent once more, so they don't wait long.
 */
import { Clock, Context, Effect, Latch } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"

export const GatheringSettings = Context.Reference<{
  /** The longest wait for sends in flight. */
  readonly longestMillis: number
  /** The least time from the beginning of a fetch to that of the next one. 0 trades CPU for latency: the median is some 2 ms less. */
  readonly apartMillis: number
  /** The longest wait of acknowledgements for a fetch. */
  readonly markMillis: number
}>("paid-once/outbox/GatheringSettings", {
  // docs/performance-log.md has what an event costs with other numbers.
  defaultValue: () => ({
    // Above a healthy acknowledgement. A longer send, as to a partition whose leader is gone, must not delay the other partitions for long.
    longestMillis: 5,
    // At 500 events a second two or three share a turn.
    apartMillis: 4,
    // Of 100 events a second, at random times, six of seven have a next one within it: 1 - e^-2.
    markMillis: 20
  })
})

/** See {@link make}. */
export interface Gathering {
  /** A send begins, or waits for its sender. */
  readonly begin: () => void
  readonly end: () => void
  /**
   * Waits until `isReady` is open, the next fetch may begin, and no send is in flight. For the first and the last no longer than the settings say.
   */
  readonly pause: (isReady: Latch.Latch) => Effect.Effect<void>
  /** A fetch begins. A turn that only marks delays no fetch. */
  readonly fetches: () => void
}

export const make = Effect.gen(function* () {
  const { apartMillis, longestMillis, markMillis } = yield* GatheringSettings
  const clock = yield* Clock.Clock
  let sends = 0
  let nextMillis = 0
  const areSent = yield* Latch.make(true)
  const opened = (latch: Latch.Latch, mostMillis: number) =>
    latch.isOpen() ? Effect.void : Effect.raceFirst(latch.await, Effect.sleep(Math.max(0, mostMillis)))
  const fetchAndSends = Effect.suspend(() => {
    const left = nextMillis - Monotonic.millisUnsafe(clock)
    // As a rule the sends have ended before the next fetch may begin, and there is nothing to wait for.
    return left > 0
      ? Effect.flatMap(Effect.sleep(left), () => opened(areSent, longestMillis - left))
      : opened(areSent, longestMillis)
  })
  return {
    begin: () => {
      sends++
      areSent.closeUnsafe()
    },
    end: () => {
      if (--sends === 0) areSent.openUnsafe()
    },
    pause: (isReady) => Effect.andThen(opened(isReady, markMillis), fetchAndSends),
    fetches: () => {
      nextMillis = Monotonic.millisUnsafe(clock) + apartMillis
    }
  } satisfies Gathering
})
