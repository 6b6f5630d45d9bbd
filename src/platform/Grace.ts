/**
 * How long a stop waits for what is under way: one grace for the whole process, which begins with the signal. Parts end one after the other, and
 * each may wait until its share of the grace is used up, so that one that hangs leaves time to those that end after it.
 */
import { Context, Effect } from "effect"

export const GraceSettings = Context.Reference<{ readonly graceMillis: number }>("paid-once/platform/GraceSettings", {
  defaultValue: () => ({ graceMillis: 10_000 })
})

/**
 * By which part of the grace each is over, in the order in which they end. Requests have most, for somebody waits for them: with the default they
 * have longer than an answer of the gateway may take. A slice and a task come again by themselves. Scrapes are those of a process that takes no
 * requests, and is watched until its work has ended. What is left is for closing connections.
 */
const shares = { requests: 0.6, slices: 0.75, groups: 0.85, tasks: 0.9, scrapes: 0.95 } as const

let beganMillis: number | undefined

/** The process has been told to stop. */
export const begin = (): void => {
  beganMillis ??= performance.now()
}

/** As if it had not been told: for a test, whose process goes on. */
export const takeBack = (): void => {
  beganMillis = undefined
}

/**
 * Says how long a part may wait for what it has under way, and that is `mostMillis` at most. A part that ends by itself, while its process
 * goes on, has all of it.
 */
export const make: Effect.Effect<(part: keyof typeof shares, mostMillis: number) => number> = Effect.map(
  GraceSettings,
  ({ graceMillis }) =>
    (part, mostMillis) =>
      beganMillis === undefined
        ? mostMillis
        : Math.max(0, Math.min(mostMillis, beganMillis + graceMillis * shares[part] - performance.now()))
)
