/** Polls before the regular time: when a paused or failed lane may continue, or at the time when it will. */
import { Context, Effect, Latch, Layer } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"

export class PollRequests extends Context.Service<
  PollRequests,
  {
    /** Requests a poll now. */
    readonly now: Effect.Effect<void>
    /** Requests a poll after this many milliseconds. */
    readonly after: (millis: number) => Effect.Effect<void>
    /** Waits for the next requested poll, at most `longestMillis`. A request made while nothing waits is kept. */
    readonly next: (longestMillis: number) => Effect.Effect<void>
  }
>()("paid-once/outbox/PollRequests") {
  static readonly layer: Layer.Layer<PollRequests> = Layer.effect(
    PollRequests,
    Effect.gen(function* () {
      const due = yield* Latch.make(true)
      /** Opened when an earlier poll was requested. */
      const sooner = yield* Latch.make(false)
      const times = new Set<number>()

      const next = Effect.fnUntraced(function* (longestMillis: number) {
        const until = (yield* Monotonic.millis) + longestMillis
        while (true) {
          yield* sooner.close
          const now = yield* Monotonic.millis
          const first = Math.min(until, ...times)
          if (first <= now) break
          // A timer may fire a fraction of a millisecond early.
          const isDue = yield* Effect.raceAllFirst([
            Effect.as(due.await, true),
            Effect.as(sooner.await, false),
            Effect.as(Effect.sleep(first - now + 1), false)
          ])
          if (isDue) break
        }
        yield* due.close
        const now = yield* Monotonic.millis
        for (const time of times) if (time <= now) times.delete(time)
      })

      return PollRequests.of({
        now: Effect.asVoid(due.open),
        after: (millis) =>
          Effect.flatMap(Monotonic.millis, (now) => {
            // Whole milliseconds: requests for one time are one poll.
            times.add(Math.ceil(now + millis))
            return Effect.asVoid(sooner.open)
          }),
        next
      })
    })
  )
}
