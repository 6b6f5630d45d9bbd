/**
 * A time limit that many short waits share. `Effect.timeout` starts two fibers and a timer for each wait, and ends them again. Here one fiber looks
 * after all waits.
 */
import { Clock, Effect, Latch, type Scope } from "effect"
import * as Monotonic from "./Monotonic.ts"

/** Returns the promise's result, or rejects if it has none within the limit. A late result is ignored. */
export type WithinLimit = <A>(promise: Promise<A>) => Promise<A>

/** Each wait ends after `limitMillis`. The waits that are left end when the scope closes. */
export const make = Effect.fnUntraced(function* (
  limitMillis: number
): Effect.fn.Return<WithinLimit, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  /** In the order in which they began. Their limits end in the same order. */
  const waits = new Set<{ readonly untilMillis: number; readonly end: () => void }>()
  const hasWaits = yield* Latch.make(false)

  const look = Effect.suspend(() => {
    const now = Monotonic.millisUnsafe(clock)
    for (const wait of waits) {
      if (wait.untilMillis > now) return Effect.sleep(Math.ceil(wait.untilMillis - now))
      waits.delete(wait)
      wait.end()
    }
    hasWaits.closeUnsafe()
    return hasWaits.await
  })
  yield* Effect.addFinalizer(() => Effect.sync(() => waits.forEach(({ end }) => end())))
  yield* Effect.forkScoped(Effect.forever(look))

  return (promise) =>
    new Promise((resolve, reject) => {
      const wait = {
        untilMillis: Monotonic.millisUnsafe(clock) + limitMillis,
        end: () => reject(new Error(`no answer within ${limitMillis} ms`))
      }
      waits.add(wait)
      hasWaits.openUnsafe()
      const settled =
        <B>(settle: (result: B) => void) =>
        (result: B) => {
          waits.delete(wait)
          settle(result)
        }
      promise.then(settled(resolve), settled(reject))
    })
})
