/**
 * Outages in the log: one line when something stops working, at most one a minute while it lasts, and one when it works again.
 *
 * An outage ends when the last part that it stopped works again, which can be long after the database or the broker is back: the loops wait
 * between their attempts. An outage that comes back within a minute of its
 * last line waits for the next reminder. So a flapping broker writes two lines a minute at most.
 *
 * Without this layer the log has a line for each attempt of each loop.
 */
import { Duration, Effect, Layer } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"
import { type Outage, Outages } from "../platform/Outages.ts"

/** Often enough for a log that someone follows; an outage of a night is some hundred lines. */
const remindMillis = 60_000

/** A part that has not failed for so long has nothing to do any more. Above any wait between two attempts, with their time limits. */
const forgottenMillis = 120_000

/** The kinds of reasons that one outage tells at once. Others wait for the next reminder: they come from outside, and may all be different. */
const maxKinds = 8

/** The parts that a reminder names. */
const maxNamedParts = 8

interface State {
  sinceMillis: number
  /** When a line last told this outage, or one that it followed closely. */
  toldMillis: number
  /** An outage that follows another one closely is told with the next reminder, or not at all. */
  isTold: boolean
  failures: number
  reason: string
  kinds: Set<string>
  /** The parts of this process that it stops, with their last failure. */
  parts: Map<string, number>
}

const lasted = (fromMillis: number, toMillis: number) =>
  Duration.format(Duration.seconds(Math.max(1, Math.round((toMillis - fromMillis) / 1_000))))

/** Knows of no outage yet. */
export const make = Effect.sync(() => {
  /** By subject. Few: a database, a broker and its topics. */
  const states = new Map<string, State>()

  const isOpen = (state: State, now: number) => {
    for (const [part, millis] of state.parts) if (millis + forgottenMillis <= now) state.parts.delete(part)
    return state.parts.size > 0
  }

  const tell = (subject: string, state: State, now: number, since: string) => {
    state.isTold = true
    state.toldMillis = now
    return Effect.logWarning(`${subject} is unavailable${since}: ${state.reason}`).pipe(
      Effect.annotateLogs({
        stops: [...state.parts.keys()].slice(0, maxNamedParts).join(", "),
        failures: state.failures
      })
    )
  }

  /** The part is no longer stopped by the outage of this subject. */
  const leave = (subject: string, state: State, part: string, now: number): Effect.Effect<void> => {
    if (!state.parts.delete(part) || isOpen(state, now) || !state.isTold) return Effect.void
    state.isTold = false
    return Effect.logInfo(
      `${subject} is available again: nothing waits for it any more, ${lasted(state.sinceMillis, now)} after the first failure; it was: ${state.reason}`
    ).pipe(Effect.annotateLogs({ failures: state.failures }))
  }

  const failed = (part: string, { kind = "", reason, subject }: Outage, now: number): Effect.Effect<void> => {
    const left = [...states].flatMap(([other, state]) => (other === subject ? [] : [leave(other, state, part, now)]))
    for (const [other, state] of states) {
      if (!isOpen(state, now) && state.toldMillis + remindMillis <= now) states.delete(other)
    }
    const before = states.get(subject)
    const state =
      before !== undefined && isOpen(before, now)
        ? before
        : {
            sinceMillis: now,
            toldMillis: before?.toldMillis ?? Number.NEGATIVE_INFINITY,
            isTold: false,
            failures: 0,
            reason,
            kinds: before?.kinds ?? new Set<string>(),
            parts: new Map<string, number>()
          }
    states.set(subject, state)
    const isDue = state.toldMillis + remindMillis <= now
    const isNews = !state.kinds.has(kind) && state.kinds.size < maxKinds
    state.kinds.add(kind)
    state.parts.set(part, now)
    state.failures++
    state.reason = reason
    const since = state.isTold && isDue ? ` since ${lasted(state.sinceMillis, now)}` : ""
    return Effect.all(isDue || isNews ? [...left, tell(subject, state, now, since)] : left, { discard: true })
  }

  return Outages.of({
    failed: (part, outage) => Effect.flatMap(Monotonic.millis, (now) => failed(part, outage, now)),

    recovered: (part) =>
      Effect.suspend(() =>
        states.size === 0
          ? Effect.void
          : Effect.flatMap(Monotonic.millis, (now) =>
              Effect.forEach(states, ([subject, state]) => leave(subject, state, part, now), { discard: true })
            )
      )
  })
})

export const layer = Layer.effect(Outages, make)
