/**
 * A request's turn to run. Few handlers run side by side, so that the event loop comes back soon, and connections to Postgres are left for others.
 */
import { Context, Effect, type Semaphore } from "effect"
import * as Monotonic from "./Monotonic.ts"

/** The turn of this fiber's request. By default, outside of requests, there is nothing to wait for. */
const Turn = Context.Reference<{ readonly turns: Semaphore.Semaphore | undefined }>("paid-once/platform/Turn", {
  defaultValue: () => ({ turns: undefined })
})

/** How long turns begin in one round of the event loop. Until its first statement a usual handler takes some 0.05 to 0.2 ms, and the largest order thirty. */
const roundMillis = 1

/** A turn that waits for a later round. */
interface Waiting {
  /** Whether it may begin in this round. */
  readonly mayBegin: () => boolean
  readonly begin: () => void
}

/** In the order in which they came. */
const waiting: Array<Waiting> = []
/** When the first turn of this round began; undefined before. */
let begunMillis: number | undefined

const next = () => {
  begunMillis = undefined
  while (waiting[0]?.mayBegin() === true) waiting.shift()!.begin()
}

/** Whether a turn may begin in this round. */
const isOpen = (now: number): boolean => {
  if (begunMillis === undefined) {
    begunMillis = now
    setImmediate(next)
  }
  return now - begunMillis < roundMillis
}

/**
 * After {@link roundMillis} of turns the event loop comes round before the next one begins. Otherwise a turn that is free again would go on at once.
 * Sockets would not be read until the last handler has run: for seconds, as each may take some thirty milliseconds.
 */
const round = Effect.clockWith((clock) => {
  const mayBegin = () => isOpen(Monotonic.millisUnsafe(clock))
  return waiting.length === 0 && mayBegin()
    ? Effect.void
    : Effect.callback<void>((resume) => void waiting.push({ mayBegin, begin: () => resume(Effect.void) }))
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
