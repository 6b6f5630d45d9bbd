/**
 * How long turns wait, so that each takes more along: a fetch, a send and a mark for each event would cost several times as much.
 *
 * - A turn waits for sends in flight, as Nagle's algorithm gathers bytes. The time of an acknowledgement is the measure: a fast broker leaves little to
 *   gather, and a slow one much.
 * - Fetches are kept apart, which bounds their number in a second. An event that comes after a pause waits for nothing.
 * - Acknowledgements wait for each other, while fetches go on. After a crash such events are sent once more, so they don't wait long.
 */
import { Clock, Context, Effect, Latch } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"

export const GatheringSettings = Context.Reference<{
  /** The longest wait for sends in flight. */
  readonly longestMillis: number
  /** The least time between the beginnings of two fetches, less up to a millisecond: after one that found {@link many} events, and after others. */
  readonly apartMillis: { readonly busy: number; readonly calm: number }
  /** The longest wait of acknowledgements. */
  readonly markMillis: number
}>("paid-once/outbox/GatheringSettings", {
  // docs/performance-log.md has what an event costs with other numbers.
  defaultValue: () => ({
    // Above a healthy acknowledgement. A longer send, as to a partition whose leader is gone, must not delay the other partitions for long.
    longestMillis: 5,
    // Eight events share a turn at 2,000 a second. At 500 a second there is one, which waits 2 ms at most.
    apartMillis: { busy: 4, calm: 2 },
    // At 500 events a second ten share a mark.
    markMillis: 20
  })
})

/** The mean of a fetch at 2,000 events a second, where fetches are 2 ms apart. At 500 a second one fetch of fifty finds so many: 1 - e^-1 · 8/3. */
const many = 4

/** Acknowledgements wait until they are so much of a batch, and the next fetch is behind their mark: few rows to leave out, and little memory. */
const mostUnmarked = 1 / 16

/** Node's timers take so long at least. A look that comes 2 ms after the last one would else wait for a third, since its fetch began a little later. */
const leastWaitMillis = 1

export const make = Effect.gen(function* () {
  const { apartMillis, longestMillis, markMillis } = yield* GatheringSettings
  const clock = yield* Clock.Clock
  const now = () => Monotonic.millisUnsafe(clock)
  let sends = 0
  let fetchedMillis = Number.NEGATIVE_INFINITY
  let distance = apartMillis.calm
  let acknowledgedMillis = 0
  const areSent = yield* Latch.make(true)
  const opened = (latch: Latch.Latch, mostMillis: number) =>
    latch.isOpen() ? Effect.void : Effect.raceFirst(latch.await, Effect.sleep(Math.max(0, mostMillis)))
  const fetchAndSends = Effect.suspend(() => {
    const left = fetchedMillis + distance - now()
    // As a rule the sends have ended before the next fetch may begin, and there is nothing to wait for.
    return left >= leastWaitMillis
      ? Effect.flatMap(Effect.sleep(left), () => opened(areSent, longestMillis - left))
      : opened(areSent, longestMillis)
  })
  return {
    /** A send begins, or waits for its sender. */
    begin: () => {
      sends++
      areSent.closeUnsafe()
    },
    end: () => {
      if (--sends === 0) areSent.openUnsafe()
    },
    /** Waits until `isReady` is open or marks are due, and then until the next fetch may begin and no send is in flight. The settings bound each wait. */
    pause: (isReady: Latch.Latch) =>
      Effect.andThen(
        Effect.suspend(() => opened(isReady, acknowledgedMillis + markMillis - now())),
        fetchAndSends
      ),
    /** A fetch begins. A turn that only marks delays no fetch. */
    fetches: () => void (fetchedMillis = now()),
    /** It has found so many events. */
    found: (events: number) => void (distance = events < many ? apartMillis.calm : apartMillis.busy),
    /** The first acknowledgement that waits for its mark. */
    acknowledged: () => void (acknowledgedMillis = now()),
    /** Whether acknowledgements of so many batches are more than may wait. */
    areMany: (load: number) => load >= mostUnmarked,
    /** Whether acknowledgements have waited as long as they may. */
    areMarksDue: () => now() >= acknowledgedMillis + markMillis
  }
})
