/** A round of attempts at the due holds of a consumer: some side by side, so a handler that hangs delays its own aggregate only. */
import { Context, Effect, Latch, Semaphore } from "effect"
import * as Monotonic from "../../platform/Monotonic.ts"

/**
 * How long a round takes up holds whose heads have failed before. Then it ends with its last attempt, so that gaps are looked at again. Holds
 * whose heads have never failed are taken up as long as an attempt is running.
 */
const roundMillis = 5_000

export const RetryRoundSettings = Context.Reference<{
  /** Attempts of a consumer that run side by side. */
  readonly sideBySide: number
}>("paid-once/inbox/holds/RetryRoundSettings", { defaultValue: () => ({ sideBySide: 4 }) })

/** How often a round looks for holds that have become due while its last attempts are running. */
const lookMillis = 200

/**
 * Runs `attempt` once for each hold that is due. Returns for how many.
 *
 * `take` finds an aggregate whose hold is due and not in `taken`; with `onlyFresh` one whose head has never failed.
 */
export const run = Effect.fnUntraced(function* <E1, E2>(holds: {
  readonly take: (taken: ReadonlySet<string>, onlyFresh: boolean) => Effect.Effect<string | undefined, E1>
  readonly attempt: (aggregateId: string) => Effect.Effect<void, E2>
}): Effect.fn.Return<number, E1 | E2> {
  const { sideBySide } = yield* RetryRoundSettings
  const endMillis = (yield* Monotonic.millis) + roundMillis
  const taken = new Set<string>()
  const looking = yield* Semaphore.make(1)
  const idle = yield* Latch.make(true)
  let running = 0
  const take = Effect.fnUntraced(function* (onlyFresh: boolean) {
    const aggregateId = yield* holds.take(taken, onlyFresh)
    if (aggregateId === undefined) return undefined
    taken.add(aggregateId)
    running += 1
    yield* idle.close
    return aggregateId
  })
  const ended = Effect.suspend(() => (--running === 0 ? Effect.asVoid(idle.open) : Effect.void))
  const work = Effect.fnUntraced(function* (onlyFresh: boolean) {
    const untilMillis = onlyFresh ? Infinity : endMillis
    while ((yield* Monotonic.millis) < untilMillis) {
      const aggregateId = yield* looking.withPermit(take(onlyFresh))
      if (aggregateId !== undefined) yield* Effect.ensuring(holds.attempt(aggregateId), ended)
      else if (running === 0) return
      else yield* Effect.timeoutOption(idle.await, lookMillis)
    }
  })
  // The last worker takes only holds whose heads have never failed: all other workers may hang.
  yield* Effect.forEach(
    Array.from({ length: sideBySide }, (_, index) => sideBySide > 1 && index === sideBySide - 1),
    work,
    { concurrency: sideBySide, discard: true }
  )
  return taken.size
})
