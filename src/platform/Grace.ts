/**
 * How long a stop waits for unfinished work: one grace for the whole process, which begins with the signal. The parts of the process end one
 * after the other, each by its own part of the grace, so that a part that hangs leaves time to the parts behind it.
 */
import { Context, Effect } from "effect"

export const GraceSettings = Context.Reference<{ readonly graceMillis: number }>("paid-once/platform/GraceSettings", {
  defaultValue: () => ({ graceMillis: 10_000 })
})

/**
 * The fraction of the grace by which each part must have ended, in the order in which they end. Requests have the most time, because clients wait
 * for them: by default more than an answer of the gateway may take. A slice and a task come again by themselves. Scrapes go to a process that takes
 * no requests, and end after its work. The rest of the grace is for closing connections.
 */
const endsBy = { requests: 0.6, slices: 0.75, groups: 0.85, tasks: 0.9, scrapes: 0.95 } as const

let beganMillis: number | undefined
let toldBy: string | undefined

/** The process has been told to stop; `by` says how, for example by which signal. */
export const begin = (by?: string): void => {
  beganMillis ??= performance.now()
  toldBy ??= by
}

/** How the process was told to stop; undefined while it was not. */
export const reason = (): string | undefined => toldBy

/** Undoes {@link begin}, for a test whose process goes on. */
export const takeBack = (): void => {
  beganMillis = undefined
  toldBy = undefined
}

/**
 * How long a part may wait for its unfinished work, at most `mostMillis`. A part that ends while its process goes on has all of that.
 */
export const make: Effect.Effect<(part: keyof typeof endsBy, mostMillis: number) => number> = Effect.map(
  GraceSettings,
  ({ graceMillis }) =>
    (part, mostMillis) =>
      beganMillis === undefined
        ? mostMillis
        : Math.max(0, Math.min(mostMillis, beganMillis + graceMillis * endsBy[part] - performance.now()))
)
