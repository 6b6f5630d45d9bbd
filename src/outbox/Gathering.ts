/**
 * Gathers work while sends are in flight, as Nagle's algorithm gathers bytes, and keeps fetches apart.
 *
 * A fetch, a send and a mark for each event would cost several times as much as for a few events together. The time of an acknowledgement is the
 * measure: a fast broker leaves little to gather, and a slow one much. The distance of two fetches bounds the number of turns in a second.
 * Acknowledgements wait for the next fetch, too, whose packet takes their mark along. An event that comes after a pause waits for nothing.
 */
import { Clock, Context, Effect, Latch } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"

export const GatheringSettings = Context.Reference<{
  /** The longest wait for sends in flight. */
  readonly longestMillis: number
  /** The least time from the beginning of a fetch to that of the next one. 0 trades CPU for latency: the median is some 2 ms less. */
  readonly apartMillis: number
}>("paid-once/outbox/GatheringSettings", {
  defaultValue: () => ({
    // Above a healthy acknowledgement. A longer send, as to a partition whose leader is gone, must not delay the other partitions for long.
    longestMillis: 5,
    // At 500 events a second two or three share a turn. docs/performance-log.md has what an event costs with it and without.
    apartMillis: 4
  })
})

/** See {@link make}. */
export interface Gathering {
  /** A send begins, or waits for its sender. */
  readonly begin: () => void
  readonly end: () => void
  /** Waits until the next fetch may begin, and no send is in flight. For the latter no longer than the settings say. */
  readonly pause: Effect.Effect<void>
  /** A fetch begins. A turn that only marks delays no fetch. */
  readonly fetches: () => void
}

export const make = Effect.gen(function* () {
  const { apartMillis, longestMillis } = yield* GatheringSettings
  const clock = yield* Clock.Clock
  let sends = 0
  let nextMillis = 0
  const areSent = yield* Latch.make(true)
  /** As a rule the sends have ended before the next fetch may begin, and there is nothing to wait for. */
  const sent = (longestLeftMillis: number) =>
    sends === 0 ? Effect.void : Effect.raceFirst(areSent.await, Effect.sleep(Math.max(0, longestLeftMillis)))
  return {
    begin: () => {
      sends++
      areSent.closeUnsafe()
    },
    end: () => {
      if (--sends === 0) areSent.openUnsafe()
    },
    pause: Effect.suspend(() => {
      const left = nextMillis - Monotonic.millisUnsafe(clock)
      return left > 0 ? Effect.flatMap(Effect.sleep(left), () => sent(longestMillis - left)) : sent(longestMillis)
    }),
    fetches: () => {
      nextMillis = Monotonic.millisUnsafe(clock) + apartMillis
    }
  } satisfies Gathering
})
