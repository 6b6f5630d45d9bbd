/**
 * Partitions that can't be reached: each waits for a jittered while before its next send, longer each time in a row. Of one process, and in memory:
 * what another process or a new start finds out for itself costs a send.
 *
 * - A failure pauses its partition, and no other: where a part of a topic is away, the others flow.
 * - What has failed, and whose pause is over, is tried by one send at a time, and few such sends are under way in all. Each may take as long as a
 *   send may, for example at a broker that swallows what it gets, and for that time its lanes are in flight and their other topics wait.
 * - An outage of all is over for all at once: the other partitions of a topic wait no longer when one is reached that was away when they last
 *   failed, or when any is for the first time since they failed. What else is written to those that are well tells nothing new: a part that is away
 *   for long is tried ever more seldom, however busy the others are.
 */
import { Effect, Latch } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Backoff from "../platform/Backoff.ts"
import { type PublishError, TopicUnavailable } from "../brokers/Broker.ts"
import { type Lane, partitionOf } from "../outbox/Lane.ts"

/** A topic whose last send, to one of its partitions at least, failed. */
export interface PausedTopic {
  readonly topic: string
  /** Failures in a row, where there were most. */
  readonly attempt: number
  readonly reason: string
}

/** A partition of a topic: of the `count` that its lanes are spread over. Unknown for a topic that was never found fit, which is one then. */
export interface Place {
  readonly partition: number
  readonly count: number
}

/** What can't be reached, or could not when it was last tried. Times are those of Monotonic.ts. */
interface Failure {
  readonly topic: string
  readonly place: Place | undefined
  /** Failures in a row. */
  readonly attempt: number
  /** When the first one in a row was seen. */
  readonly sinceMillis: number
  /** When the first of those that count as the last one was seen: what was sent before it tells nothing new. */
  readonly seenMillis: number
  /** The end of its pause. */
  readonly untilMillis: number
  /** When its pause ended before its time: what was sent before that belongs to the time before. */
  readonly releasedMillis: number | undefined
  readonly reason: string
}

/** Nothing was sent: the partition is paused, or another send finds out whether it is back. To the dispatcher it is no answer, as an outage is none. */
const paused = (topic: string) => new TopicUnavailable({ topic, reason: "it is paused" })

export type SendError = PublishError

/** Sends to failed partitions that may be under way at once. Each may take as long as a send may. */
const maxProbes = 2

/** A failed partition, or topic, of a lane. */
export interface FailedPlace {
  readonly topic: string
  readonly place: Place | undefined
  /** When the last failure was seen. */
  readonly seenMillis: number
  /** Milliseconds until it may be tried: 0 where it may be now, Infinity where it waits for the end of another attempt. */
  readonly waitMillis: number
}

export interface PauseRules {
  /**
   * Runs `send`, which is to call {@link begin} or {@link end} before it is over, unless it has to wait: then it fails, and {@link changed} is opened
   * when it is worth another look.
   */
  readonly attempt: <A, E, R>(
    topic: string,
    place: Place | undefined,
    send: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | TopicUnavailable, R>
  /** Pauses the place for a send that began at `sentMillis`. Of sends that were under way together, one failure counts. */
  readonly begin: (
    topic: string,
    place: Place | undefined,
    error: PublishError,
    sentMillis: number
  ) => Effect.Effect<void>
  /** The topic was reached, there, by a send that began at `sentMillis`. */
  readonly end: (topic: string, place: Place | undefined, sentMillis: number) => Effect.Effect<void>
  /** Topics that are not to be sent to from the lane now. */
  readonly runningIn: (lane: Lane) => Effect.Effect<ReadonlyArray<string>>
  /** What has failed of the lane. */
  readonly failedIn: (lane: Lane) => Effect.Effect<ReadonlyArray<FailedPlace>>
  /** How many more failed partitions may be tried now. */
  readonly room: () => number
  /** Somebody waits for nothing but room to try the place. */
  readonly waitFor: (topic: string, place: Place | undefined) => Effect.Effect<void>
  /**
   * Since when the lane's partition has waited for a try, in the topic where it has waited longest; 0 for one that has not failed. Who comes first
   * when there is room for a try is not to be always the same.
   */
  readonly failedMillis: (lane: Lane) => number
  /** Those that were not reached since they failed, for health. */
  readonly all: Effect.Effect<ReadonlyArray<PausedTopic>>
  /** How long nothing at all was reached, of what is sent to: milliseconds; 0 where nothing has failed. */
  readonly strandedMillis: Effect.Effect<number>
  /** Forgets what has failed: it is known from elsewhere that the broker is back, and what is still away fails anew. */
  readonly release: Effect.Effect<void>
  /** Milliseconds until the next of the running pauses ends; undefined where there is none. */
  readonly nextEndMillis: Effect.Effect<number | undefined>
  /** Opened when a pause begins, or ends before its time, or what had failed was reached, or a try is over: what is waited for is to be looked at again. */
  readonly changed: Latch.Latch
}

const keyOf = (topic: string, place: Place | undefined) =>
  place === undefined ? topic : `${topic}\0${place.partition}/${place.count}`

const isIn = (lane: Lane, place: Place | undefined) =>
  place === undefined || partitionOf(lane, place.count) === place.partition

export const make = Effect.fnUntraced(function* (options: {
  /** Of the full jitter. */
  readonly baseMillis: number
  readonly capMillis: number
  /**
   * A pause that ended so long ago, and nobody has tried or waited for his turn since, is over: the events that it was for have gone to another
   * process with their lane. Longer than a send may be under way.
   */
  readonly forgottenAfterMillis: number
  /** Runs whenever {@link PauseRules.changed} is opened, for whoever waits elsewhere. */
  readonly onChange?: Effect.Effect<unknown>
}): Effect.fn.Return<PauseRules> {
  const changed = yield* Latch.make(false)
  const change = Effect.andThen(changed.open, options.onChange ?? Effect.void)
  const failures = new Map<string, Failure>()
  /** When a topic of which something has failed was last reached. */
  const reached = new Map<string, number>()
  /** When anything was last reached while something else had failed. */
  let answeredMillis = Number.NEGATIVE_INFINITY
  /** What is being tried, each by one send. */
  const probed = new Set<string>()
  /** When somebody last waited for there to be room for a try of it. */
  const waited = new Map<string, number>()
  const forget = (key: string) => {
    failures.delete(key)
    waited.delete(key)
  }
  /** The failures, less those that are forgotten. */
  const at = (now: number): ReadonlyMap<string, Failure> => {
    for (const [key, failure] of failures) {
      const lastMillis = Math.max(failure.untilMillis, waited.get(key) ?? 0)
      if (lastMillis + options.forgottenAfterMillis <= now && !probed.has(key)) forget(key)
    }
    return failures
  }

  const hasRoom = (key: string) => probed.size < maxProbes && !probed.has(key)

  /** Whether it is to be left out now. Remembers who waits for nothing but room. */
  const mustWait = (failure: Failure, now: number) => {
    if (failure.untilMillis > now) return true
    const key = keyOf(failure.topic, failure.place)
    if (hasRoom(key)) return false
    waited.set(key, now)
    return true
  }

  const attempt = <A, E, R>(topic: string, place: Place | undefined, send: Effect.Effect<A, E, R>) =>
    Effect.flatMap(Monotonic.millis, (now): Effect.Effect<A, E | TopicUnavailable, R> => {
      const key = keyOf(topic, place)
      const failure = at(now).get(key)
      if (failure === undefined) return send
      if (mustWait(failure, now)) return Effect.fail(paused(topic))
      return Effect.acquireUseRelease(
        Effect.sync(() => probed.add(key)),
        () => send,
        () =>
          Effect.andThen(
            Effect.sync(() => probed.delete(key)),
            change
          )
      )
    })

  const begin: PauseRules["begin"] = Effect.fnUntraced(function* (topic, place, error, sentMillis) {
    const now = yield* Monotonic.millis
    const key = keyOf(topic, place)
    const before = at(now).get(key)
    if (before !== undefined && before.untilMillis > now) return
    // It was under way when the others were reached, and is tried again as they are.
    if (before?.releasedMillis !== undefined && sentMillis < before.releasedMillis) {
      yield* change
      return
    }
    const isLate = before !== undefined && sentMillis < before.seenMillis
    const { attempt, seenMillis } = isLate ? before : { attempt: (before?.attempt ?? 0) + 1, seenMillis: now }
    const delay = yield* Backoff.millisAfter(Backoff.partitionPause(options.baseMillis, options.capMillis), attempt)
    failures.set(key, {
      topic,
      place,
      attempt,
      sinceMillis: before?.sinceMillis ?? now,
      seenMillis,
      untilMillis: now + delay,
      releasedMillis: undefined,
      reason: error.message
    })
    yield* change
    yield* Effect.logWarning(`publishing to ${topic} failed; next try in ${Math.round(delay)} ms`).pipe(
      Effect.annotateLogs({
        topic,
        ...(place === undefined ? {} : { partition: place.partition }),
        attempt,
        reason: error._tag,
        detail: error.message
      })
    )
  })

  const end = Effect.fnUntraced(function* (topic: string, place: Place | undefined, sentMillis: number) {
    const now = yield* Monotonic.millis
    answeredMillis = now
    // A topic that had not been found fit was one place, and is several now.
    const keys = [keyOf(topic, place), keyOf(topic, undefined)]
    const own = keys.flatMap((key) => failures.get(key) ?? [])
    for (const key of keys) forget(key)
    // Where its pause is over already, too: who looked while it was tried waits for more than the end of that.
    let hasEnded = own.length > 0
    const others = [...at(now)].filter(([, failure]) => failure.topic === topic)
    const lastMillis = reached.get(topic) ?? Number.NEGATIVE_INFINITY
    for (const [key, failure] of others) {
      // One that failed while this send was under way may have failed after it had arrived.
      if (failure.seenMillis >= sentMillis) continue
      const isNews =
        own.length === 0
          ? lastMillis < failure.sinceMillis
          : own.some(({ sinceMillis }) => sinceMillis <= failure.seenMillis)
      if (!isNews) continue
      hasEnded ||= failure.untilMillis > now
      // It goes on counting.
      failures.set(key, { ...failure, untilMillis: Math.min(failure.untilMillis, now), releasedMillis: now })
    }
    if (others.length === 0) reached.delete(topic)
    else reached.set(topic, now)
    if (hasEnded) yield* change
  })

  const waitingIn = (lane: Lane, now: number) =>
    [...failures.values()].filter((failure) => isIn(lane, failure.place) && mustWait(failure, now))

  return {
    attempt: (topic, place, send) => Effect.suspend(() => (failures.size === 0 ? send : attempt(topic, place, send))),
    begin,
    end: (topic, place, sentMillis) =>
      Effect.suspend(() => (failures.size === 0 ? Effect.void : end(topic, place, sentMillis))),
    runningIn: (lane) =>
      Effect.suspend(() =>
        failures.size === 0
          ? Effect.succeed([])
          : Effect.map(Monotonic.millis, (now) => [...new Set(waitingIn(lane, now).map(({ topic }) => topic))])
      ),
    failedIn: (lane) =>
      Effect.suspend(() =>
        failures.size === 0
          ? Effect.succeed([])
          : Effect.map(Monotonic.millis, (now) =>
              [...at(now).values()]
                .filter(({ place }) => isIn(lane, place))
                .map(({ place, seenMillis, topic, untilMillis }) => {
                  const isFree = hasRoom(keyOf(topic, place))
                  const waitMillis = untilMillis > now ? untilMillis - now : isFree ? 0 : Number.POSITIVE_INFINITY
                  return { topic, place, seenMillis, waitMillis }
                })
            )
      ),
    room: () => maxProbes - probed.size,
    waitFor: (topic, place) => Effect.map(Monotonic.millis, (now) => void waited.set(keyOf(topic, place), now)),
    failedMillis: (lane) => {
      const times = [...failures.values()].filter(({ place }) => isIn(lane, place)).map(({ seenMillis }) => seenMillis)
      return times.length === 0 ? 0 : Math.min(...times)
    },
    all: Effect.map(Monotonic.millis, (now) => {
      const topics = new Map<string, PausedTopic>()
      for (const { attempt, reason, topic } of at(now).values()) {
        if (attempt > (topics.get(topic)?.attempt ?? 0)) topics.set(topic, { topic, attempt, reason })
      }
      return [...topics.values()]
    }),
    strandedMillis: Effect.map(Monotonic.millis, (now) => {
      const sinces = [...at(now).values()].map(({ sinceMillis }) => sinceMillis)
      return sinces.length === 0 ? 0 : now - Math.max(answeredMillis, Math.min(...sinces))
    }),
    release: Effect.suspend(() => {
      for (const key of failures.keys()) forget(key)
      return change
    }),
    nextEndMillis: Effect.map(Monotonic.millis, (now) => {
      const ends = [...at(now).values()].map(({ untilMillis }) => untilMillis).filter((millis) => millis > now)
      return ends.length === 0 ? undefined : Math.min(...ends) - now
    }),
    changed
  }
})
