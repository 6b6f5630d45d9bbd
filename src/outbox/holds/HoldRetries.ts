/**
 * Starts the next attempt of each refused event when it is due. A timer waits for the earliest due time of the owned lanes. A hold that changes, here
 * or in another process, wakes it, and a poll covers lost wake-ups.
 */
import { Effect, type Scope, Stream } from "effect"
import * as Backoff from "../../platform/Backoff.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import { Wakeups } from "../../platform/Wakeups.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Holds, type Watch, type WatchOptions } from "./Holds.ts"
import type { Lane } from "../Lane.ts"

const subject = "holds"

/** Tells all dispatchers that an operator's redrive changed a hold of the lane. A hint: the poll finds it, too. */
export const announce = (lane: Lane): Effect.Effect<void, never, Wakeups> =>
  Effect.flatMap(Wakeups, (wakeups) => wakeups.send(subject, [String(lane)]))

/** The interval at which the waiting loop shows health that it is alive. */
const stampMillis = 10_000

/** Watches the due times of `options.lanes` while the scope lives, and calls `wake` for each lane with a due event. */
export const make = Effect.fnUntraced(function* (
  options: WatchOptions
): Effect.fn.Return<Watch, never, Holds | Wakeups | Supervised.Fibers | Scope.Scope> {
  const holds = yield* Holds
  const wakeups = yield* Wakeups
  const failing = new Map<Lane, { readonly attempt: number; readonly untilMillis: number }>()

  yield* wakeups.on(subject, () => void holds.changed.openUnsafe())
  yield* Effect.forkScoped(Stream.runForEach(options.laneChanges, () => holds.changed.open))
  yield* Supervised.forkLoop("dispatcher holds", (stamp) =>
    Effect.gen(function* () {
      // Closed before the query, so a change during the query causes another one.
      yield* holds.changed.close
      const lanes = yield* options.lanes
      for (const lane of failing.keys()) if (!lanes.includes(lane)) failing.delete(lane)
      let waitMillis = options.pollMillis
      const failingBefore = new Map(failing)
      const next = lanes.length === 0 ? [] : yield* holds.nextDue(lanes)
      const now = yield* Monotonic.millis
      for (const { lane, waitMillis: dueMillis } of next) {
        const millis = Math.max(dueMillis, (failing.get(lane)?.untilMillis ?? 0) - now)
        if (millis > 0) waitMillis = Math.min(waitMillis, Math.ceil(millis))
        else options.wake(lane)
      }
      // A head whose outcome could not be stored is due as before. If none is due, another process has stored its outcome.
      for (const [lane, before] of failingBefore) {
        const isDue = next.some((one) => one.lane === lane && one.isDue)
        if (!isDue && failing.get(lane) === before) failing.delete(lane)
      }
      yield* holds.changed.await.pipe(Effect.timeoutOption(Math.min(waitMillis, stampMillis)), Effect.andThen(stamp))
    })
  )

  return {
    failed: Effect.fnUntraced(function* (lane, cause) {
      const attempt = (failing.get(lane)?.attempt ?? 0) + 1
      const millis = yield* Backoff.millisAfter(Backoff.lane, attempt)
      failing.set(lane, { attempt, untilMillis: (yield* Monotonic.millis) + millis })
      yield* holds.changed.open
      yield* Effect.logError(
        `lane ${lane}: a refused event could not be tried again; next try in ${Math.round(millis)} ms`,
        cause
      )
    }),
    failing: () => failing
  }
})
