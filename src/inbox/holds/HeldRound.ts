/** How the due holds of a consumer take turns: some side by side, so that one whose handler hangs keeps no other waiting. */
import { Context, Effect, Latch, Semaphore } from "effect"
import * as Monotonic from "../../platform/Monotonic.ts"

/**
 * For so long a round takes up holds that have failed before; then it ends with the last try, so that gaps are looked for again. What never
 * failed is taken up as long as a try is under way.
 */
const roundMillis = 5_000

/** How a round goes about its holds. */
export const HeldRoundSettings = Context.Reference<{
  /** Holds of a consumer that are tried side by side: a handler that hangs keeps its own aggregate waiting, and no other. */
  readonly sideBySide: number
}>("paid-once/inbox/holds/HeldRoundSettings", { defaultValue: () => ({ sideBySide: 4 }) })

/** How often a round looks for what has become due while its last tries take their time. */
const lookMillis = 200

/**
 * One round over the due holds, each of which has one turn in it. Returns how many had.
 *
 * `take` finds an aggregate that is due and not among `taken`, with `onlyFresh` one whose head never failed.
 */
export const run = Effect.fnUntraced(function* <E1, E2>(holds: {
  readonly take: (taken: ReadonlySet<string>, onlyFresh: boolean) => Effect.Effect<string | undefined, E1>
  readonly attempt: (aggregateId: string) => Effect.Effect<void, E2>
}): Effect.fn.Return<number, E1 | E2> {
  const { sideBySide } = yield* HeldRoundSettings
  const endMillis = (yield* Monotonic.millis) + roundMillis
  const taken = new Set<string>()
  const looking = yield* Semaphore.make(1)
  const idle = yield* Latch.make(true)
  let busy = 0
  const take = Effect.fnUntraced(function* (onlyFresh: boolean) {
    const aggregateId = yield* holds.take(taken, onlyFresh)
    if (aggregateId === undefined) return undefined
    taken.add(aggregateId)
    busy += 1
    yield* idle.close
    return aggregateId
  })
  const ended = Effect.suspend(() => (--busy === 0 ? Effect.asVoid(idle.open) : Effect.void))
  const work = Effect.fnUntraced(function* (onlyFresh: boolean) {
    const untilMillis = onlyFresh ? Infinity : endMillis
    while ((yield* Monotonic.millis) < untilMillis) {
      const aggregateId = yield* looking.withPermit(take(onlyFresh))
      if (aggregateId !== undefined) yield* Effect.ensuring(holds.attempt(aggregateId), ended)
      else if (busy === 0) return
      else yield* Effect.timeoutOption(idle.await, lookMillis)
    }
  })
  // One place is kept for what never failed: the others may all hang. It looks last, when it can see whether there is a round at all.
  yield* Effect.forEach(
    Array.from({ length: sideBySide }, (_, index) => sideBySide > 1 && index === sideBySide - 1),
    work,
    { concurrency: sideBySide, discard: true }
  )
  return taken.size
})
