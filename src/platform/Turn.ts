/**
 * A request's turn to run. Few handlers run side by side, so that the event loop comes back soon, and connections to Postgres are left for others.
 */
import { Context, Effect, type Semaphore } from "effect"

/** The turn of this fiber's request. By default, outside of requests, there is nothing to wait for. */
const Turn = Context.Reference<{ readonly turns: Semaphore.Semaphore | undefined }>("paid-once/platform/Turn", {
  defaultValue: () => ({ turns: undefined })
})

const waiting: Array<() => void> = []

const next = () => {
  // It stays in the list until it has begun: who comes meanwhile finds that a round is under way.
  waiting[0]?.()
  waiting.shift()
  if (waiting.length > 0) setImmediate(next)
}

/**
 * One turn begins in each round of the event loop. Otherwise a turn that is free again would go on in the same round. Sockets
 * would not be read until the last handler has run: for seconds, as each takes some thirty milliseconds.
 */
const round = Effect.callback<void>((resume) => {
  waiting.push(() => resume(Effect.void))
  if (waiting.length === 1) setImmediate(next)
})

/** Runs a handler when its turn comes. */
export const take = <A, E, R>(turns: Semaphore.Semaphore, handler: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  turns.withPermits(1)(Effect.andThen(round, Effect.provideService(handler, Turn, { turns })))

/** Waits for somebody else, a client or another company, and lets other requests run meanwhile. Only for the handler's own fiber. */
export const aside = <A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Turn, ({ turns }) =>
    turns === undefined
      ? wait
      : Effect.acquireUseRelease(
          turns.release(1),
          () => wait,
          () => Effect.andThen(turns.take(1), round)
        )
  )
