/**
 * Topics that can't be reached: each waits for a jittered while before its next send, longer each time in a row. Of one process, and in memory: what
 * another process or a new start finds out for itself costs a send.
 */
import { Clock, Effect, Latch } from "effect"
import * as Supervised from "../../platform/Supervised.ts"
import type { PublishError } from "../broker/Broker.ts"

/** A topic whose last send failed. */
export interface PausedTopic {
  readonly topic: string
  /** Failures in a row. */
  readonly attempt: number
  readonly reason: string
}

interface Pause {
  readonly attempt: number
  /** When the first of the failures that count as this one was seen: what was sent before it tells nothing new. */
  readonly firstMillis: number
  readonly untilMillis: number
  readonly reason: string
}

export interface TopicPauses {
  /** Pauses the topic for a send that began at `sentMillis`. Of sends that were under way together, one failure counts. */
  readonly begin: (topic: string, error: PublishError, sentMillis: number) => Effect.Effect<void>
  /** The topic was reached. */
  readonly end: (topic: string) => Effect.Effect<void>
  /** Those that are not to be sent to now. */
  readonly running: Effect.Effect<ReadonlyArray<string>>
  /** Those that were not reached since they failed, for health. */
  readonly all: Effect.Effect<ReadonlyArray<PausedTopic>>
  /** Milliseconds until the next of the running pauses ends; undefined where there is none. */
  readonly nextEndMillis: Effect.Effect<number | undefined>
  /** Opened when a pause begins: its end is one more moment to wait for. */
  readonly begun: Latch.Latch
}

export const make = Effect.fnUntraced(function* (options: {
  /** Of the full jitter. */
  readonly baseMillis: number
  readonly capMillis: number
  /**
   * A pause that ended so long ago, and no send failed or succeeded since, is over: the events that it was for have gone to another process with
   * their lane. Longer than a send may be under way.
   */
  readonly forgottenAfterMillis: number
}): Effect.fn.Return<TopicPauses> {
  const begun = yield* Latch.make(false)
  const pauses = new Map<string, Pause>()
  /** The pauses, less those that are forgotten. */
  const at = (now: number): ReadonlyMap<string, Pause> => {
    for (const [topic, pause] of pauses) {
      if (pause.untilMillis + options.forgottenAfterMillis <= now) pauses.delete(topic)
    }
    return pauses
  }
  const running = Effect.map(Clock.currentTimeMillis, (now) =>
    [...at(now)].filter(([, pause]) => pause.untilMillis > now)
  )

  return {
    begin: Effect.fnUntraced(function* (topic, error, sentMillis) {
      const now = yield* Clock.currentTimeMillis
      const current = at(now).get(topic)
      if (current !== undefined && current.untilMillis > now) return
      const isLate = current !== undefined && sentMillis < current.firstMillis
      const { attempt, firstMillis } = isLate ? current : { attempt: (current?.attempt ?? 0) + 1, firstMillis: now }
      const delay = yield* Supervised.fullJitterMillis(attempt - 1, options.baseMillis, options.capMillis)
      pauses.set(topic, { attempt, firstMillis, untilMillis: now + delay, reason: error.message })
      yield* begun.open
      yield* Effect.logWarning(`publishing to ${topic} failed; next try in ${Math.round(delay)} ms`).pipe(
        Effect.annotateLogs({ topic, attempt, reason: error._tag, detail: error.message })
      )
    }),
    end: (topic) => Effect.sync(() => pauses.delete(topic)),
    running: Effect.map(running, (all) => all.map(([topic]) => topic)),
    all: Effect.map(Clock.currentTimeMillis, (now) =>
      [...at(now)].map(([topic, { attempt, reason }]) => ({ topic, attempt, reason }))
    ),
    nextEndMillis: Effect.flatMap(running, (all) =>
      Effect.map(Clock.currentTimeMillis, (now) =>
        all.length === 0 ? undefined : Math.max(0, Math.min(...all.map(([, pause]) => pause.untilMillis)) - now)
      )
    ),
    begun
  }
})
