/**
 * Topics that can't be reached, whole or in one of their partitions: each waits for a jittered while before its next send, longer each time in a row.
 * Of one process, and in memory: what another process or a new start finds out for itself costs a send.
 *
 * A failure pauses the topic, for as a rule all of it is away, and one send in a while is enough to find out; and it pauses its partition. Any
 * success ends the topic's pause, and only one in that partition ends the partition's: where a part is away for long, what is written to the
 * others must not make it be tried as often as they are.
 */
import { Clock, Effect, Latch } from "effect"
import * as Supervised from "../../platform/Supervised.ts"
import type { PublishError } from "../broker/Broker.ts"
import { type Lane, partitionOf } from "./Lane.ts"

/** A topic whose last send, to one of its partitions at least, failed. */
export interface PausedTopic {
  readonly topic: string
  /** Failures in a row, where there were most. */
  readonly attempt: number
  readonly reason: string
}

/** A partition of a topic: of the `count` that its lanes are spread over. Unknown for a topic that was not found fit yet, or not again. */
export interface Place {
  readonly partition: number
  readonly count: number
}

interface Pause {
  readonly topic: string
  /** None: the whole topic. */
  readonly place: Place | undefined
  readonly attempt: number
  /** When the first of the failures that count as this one was seen: what was sent before it tells nothing new. */
  readonly firstMillis: number
  readonly untilMillis: number
  readonly reason: string
}

/** After so many failures in a row, with no success in any partition, it was the topic that was away. */
const wholeAttempts = 3

export interface TopicPauses {
  /** Pauses the topic, and the place, for a send that began at `sentMillis`. Of sends that were under way together, one failure counts. */
  readonly begin: (
    topic: string,
    place: Place | undefined,
    error: PublishError,
    sentMillis: number
  ) => Effect.Effect<void>
  /** The topic was reached, there. */
  readonly end: (topic: string, place: Place | undefined) => Effect.Effect<void>
  /** Topics that are not to be sent to now. */
  readonly running: Effect.Effect<ReadonlyArray<string>>
  /** The same for a lane, whose partition may have a pause of its own. */
  readonly runningIn: (lane: Lane) => Effect.Effect<ReadonlyArray<string>>
  /** Those that were not reached since they failed, for health. */
  readonly all: Effect.Effect<ReadonlyArray<PausedTopic>>
  /** Milliseconds until the next of the running pauses ends; undefined where there is none. */
  readonly nextEndMillis: Effect.Effect<number | undefined>
  /** Opened when a pause begins, or ends before its time: what is waited for is to be looked at again. */
  readonly begun: Latch.Latch
}

const keyOf = (topic: string, place: Place | undefined) =>
  place === undefined ? topic : `${topic}\0${place.partition}/${place.count}`

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
    for (const [key, pause] of pauses) {
      if (pause.untilMillis + options.forgottenAfterMillis <= now) pauses.delete(key)
    }
    return pauses
  }
  const running = Effect.map(Clock.currentTimeMillis, (now) =>
    [...at(now).values()].filter((pause) => pause.untilMillis > now)
  )

  const beginOne = Effect.fnUntraced(function* (
    topic: string,
    place: Place | undefined,
    reason: string,
    sentMillis: number
  ) {
    const now = yield* Clock.currentTimeMillis
    const key = keyOf(topic, place)
    const current = at(now).get(key)
    if (current !== undefined && current.untilMillis > now) return undefined
    const isLate = current !== undefined && sentMillis < current.firstMillis
    const { attempt, firstMillis } = isLate ? current : { attempt: (current?.attempt ?? 0) + 1, firstMillis: now }
    const delay = yield* Supervised.fullJitterMillis(attempt - 1, options.baseMillis, options.capMillis)
    pauses.set(key, { topic, place, attempt, firstMillis, untilMillis: now + delay, reason })
    return { attempt, delay }
  })

  /** All of the topic was away: nobody waits any longer. Who fails again goes on counting. */
  const isBack = Effect.fnUntraced(function* (topic: string) {
    const now = yield* Clock.currentTimeMillis
    for (const [key, pause] of pauses) {
      if (pause.topic === topic && pause.untilMillis > now) pauses.set(key, { ...pause, untilMillis: now })
    }
    yield* begun.open
  })

  return {
    begin: Effect.fnUntraced(function* (topic, place, error, sentMillis) {
      const whole = yield* beginOne(topic, undefined, error.message, sentMillis)
      const part = place === undefined ? undefined : yield* beginOne(topic, place, error.message, sentMillis)
      const told = part ?? whole
      if (told === undefined) return
      yield* begun.open
      yield* Effect.logWarning(`publishing to ${topic} failed; next try in ${Math.round(told.delay)} ms`).pipe(
        Effect.annotateLogs({
          topic,
          ...(place === undefined ? {} : { partition: place.partition }),
          attempt: told.attempt,
          reason: error._tag,
          detail: error.message
        })
      )
    }),
    end: (topic, place) =>
      Effect.suspend(() => {
        if (pauses.size === 0) return Effect.void
        const whole = pauses.get(topic)
        pauses.delete(topic)
        if (place !== undefined) pauses.delete(keyOf(topic, place))
        return whole === undefined || whole.attempt < wholeAttempts ? Effect.void : isBack(topic)
      }),
    running: Effect.map(running, (all) => all.filter(({ place }) => place === undefined).map(({ topic }) => topic)),
    runningIn: (lane) =>
      pauses.size === 0
        ? Effect.succeed([])
        : Effect.map(running, (all) => [
            ...new Set(
              all
                .filter(({ place }) => place === undefined || partitionOf(lane, place.count) === place.partition)
                .map(({ topic }) => topic)
            )
          ]),
    all: Effect.map(Clock.currentTimeMillis, (now) => {
      const topics = new Map<string, PausedTopic>()
      for (const { attempt, reason, topic } of at(now).values()) {
        if (attempt > (topics.get(topic)?.attempt ?? 0)) topics.set(topic, { topic, attempt, reason })
      }
      return [...topics.values()]
    }),
    nextEndMillis: Effect.flatMap(running, (all) =>
      Effect.map(Clock.currentTimeMillis, (now) =>
        all.length === 0 ? undefined : Math.max(0, Math.min(...all.map((pause) => pause.untilMillis)) - now)
      )
    ),
    begun
  }
})
