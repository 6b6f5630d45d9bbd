/**
 * The rules of paused partitions. An unreachable partition waits for a jittered delay before its next send, longer after each failure in a row. The
 * pauses belong to one process and live in memory: another process or a restart learns of a failure by one send.
 *
 * - A failure pauses its own partition only. The topic's other partitions continue.
 * - After its pause a failed partition is tried by one send, a probe. Few probes run at once, because each may take as long as a send's time limit.
 *   Meanwhile its lanes are in flight, and their other topics wait.
 * - An outage ends for all partitions of a topic at once. They stop waiting when a send reaches a partition that was unreachable at their last
 *   failure. They also stop waiting when any partition is reached for the first time since they failed.
 * - Further sends to healthy partitions shorten no pause. A partition that stays unreachable is tried ever more rarely, however busy the others are.
 */
import { Effect } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Outages from "../platform/Outages.ts"
import * as Backoff from "../platform/Backoff.ts"
import { type PublishError, TopicUnavailable } from "../brokers/Broker.ts"
import { type Lane, partitionOf } from "../outbox/Lane.ts"
import { byTopic, type PausedTopic } from "./PausedTopic.ts"

/** One of the `count` partitions that the topic's lanes are spread over. Unknown for a topic that was never reached, which counts as one place. */
export interface Place {
  readonly partition: number
  readonly count: number
}

/** A partition or topic whose last send failed. Times are those of Monotonic.ts. */
interface Failure {
  readonly topic: string
  readonly place: Place | undefined
  /** Failures in a row. */
  readonly attempt: number
  /** When the first failure in a row was seen. */
  readonly sinceMillis: number
  /** When the last counted failure was first seen. Sends that began before it tell nothing new. */
  readonly seenMillis: number
  /** The end of its pause. */
  readonly untilMillis: number
  /** When its pause was ended early. Sends that began before belong to the earlier outage. */
  readonly releasedMillis: number | undefined
  readonly reason: string
}

/** Nothing was sent: the partition is paused, or another send probes it. The dispatcher treats it like an outage, as no answer. */
const paused = (topic: string) => new TopicUnavailable({ topic, reason: "it is paused" })

export type SendError = PublishError

/** Probes that may run at once. Each may take as long as a send's time limit. */
const maxProbes = 2

/** A failed partition, or topic, of a lane. */
export interface FailedPlace {
  readonly topic: string
  readonly place: Place | undefined
  /** Milliseconds until it may be tried: 0 if it may be tried now, Infinity if it waits for another attempt to end. */
  readonly waitMillis: number
}

export interface PauseRules {
  /**
   * Runs `send`, which must call {@link begin} or {@link end}. If the place has to wait, it fails instead, and `onChange` runs when another
   * attempt may succeed.
   */
  readonly attempt: <A, E, R>(
    topic: string,
    place: Place | undefined,
    send: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | TopicUnavailable, R>
  /** Pauses the place for a send that began at `sentMillis`. Of concurrent sends, one failure counts. */
  readonly begin: (
    topic: string,
    place: Place | undefined,
    error: PublishError,
    sentMillis: number
  ) => Effect.Effect<void>
  /** A send that began at `sentMillis` reached the place. */
  readonly end: (topic: string, place: Place | undefined, sentMillis: number) => Effect.Effect<void>
  /** Topics to which nothing is sent from the lane now. */
  readonly runningIn: (lane: Lane) => Effect.Effect<ReadonlyArray<string>>
  /** The failed places of the lane. */
  readonly failedIn: (lane: Lane) => Effect.Effect<ReadonlyArray<FailedPlace>>
  /** Whether any place has failed and was not reached since. */
  readonly hasFailures: () => boolean
  /** How many more probes may start now. */
  readonly room: () => number
  /** Records that the place waits only for room to be probed. */
  readonly waitFor: (topic: string, place: Place | undefined) => Effect.Effect<void>
  /** The topics that were not reached since they failed, for health. */
  readonly all: Effect.Effect<ReadonlyArray<PausedTopic>>
  /** Milliseconds in which no send reached anything; 0 if nothing has failed. */
  readonly strandedMillis: Effect.Effect<number>
  /** Forgets all failures, because the broker is known to be reachable. Places that are still unreachable fail anew. */
  readonly release: Effect.Effect<void>
  /** Milliseconds until the next running pause ends; undefined if there is none. */
  readonly nextEndMillis: Effect.Effect<number | undefined>
}

const keyOf = (topic: string, place: Place | undefined) =>
  place === undefined ? topic : `${topic}\0${place.partition}/${place.count}`

/** How the log names the part of the process that a failed place stops. */
const partOf = (topic: string, place: Place | undefined) =>
  place === undefined ? `publishing to ${topic}` : `publishing to ${topic}/${place.partition}`

const isIn = (lane: Lane, place: Place | undefined) =>
  place === undefined || partitionOf(lane, place.count) === place.partition

export const make = Effect.fnUntraced(function* (options: {
  /** The base of the full jitter. */
  readonly baseMillis: number
  readonly capMillis: number
  /**
   * A pause is forgotten this long after its end and after the last probe or wait for one. Its events have moved to another process with their lane.
   * Longer than a send's time limit.
   */
  readonly forgottenAfterMillis: number
  /** Runs when a pause begins or ends early, a failed place is reached, or a probe ends: waiting work must be checked again. */
  readonly onChange?: Effect.Effect<unknown>
}): Effect.fn.Return<PauseRules> {
  const outages = yield* Outages.Outages
  const change = options.onChange ?? Effect.void
  const failures = new Map<string, Failure>()
  /** When a topic with a failed place was last reached. */
  const reached = new Map<string, number>()
  /** When any send last reached its partition while another place had failed. */
  let answeredMillis = Number.NEGATIVE_INFINITY
  /** The places that are being probed, each by one send. */
  const probed = new Set<string>()
  /** When the place last waited for room to be probed. */
  const waited = new Map<string, number>()
  const forget = (key: string) => {
    failures.delete(key)
    waited.delete(key)
  }
  /** The failures, without forgotten ones. */
  const at = (now: number): ReadonlyMap<string, Failure> => {
    for (const [key, failure] of failures) {
      const lastMillis = Math.max(failure.untilMillis, waited.get(key) ?? 0)
      if (lastMillis + options.forgottenAfterMillis <= now && !probed.has(key)) forget(key)
    }
    return failures
  }

  const hasRoom = (key: string) => probed.size < maxProbes && !probed.has(key)

  /** Whether the place is left out now. Records places that wait only for room. */
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
    // This send was in flight when the other places were reached. It is tried again with them.
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
    const outage = Outages.of(error)
    if (outage !== undefined) yield* outages.failed(partOf(topic, place), outage)
    yield* Effect.logDebug(`publishing to ${topic} failed; next try in ${Math.round(delay)} ms`).pipe(
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
    // A topic with unknown partitions was one place, and is several now.
    const keys = [keyOf(topic, place), keyOf(topic, undefined)]
    const own = keys.flatMap((key) => failures.get(key) ?? [])
    for (const key of keys) forget(key)
    for (const failure of own) yield* outages.recovered(partOf(topic, failure.place))
    // Counts even if its pause is over: lanes that were checked during the probe wait for more than the end of the pause.
    let hasEnded = own.length > 0
    const others = [...at(now)].filter(([, failure]) => failure.topic === topic)
    const lastMillis = reached.get(topic) ?? Number.NEGATIVE_INFINITY
    for (const [key, failure] of others) {
      // A place that failed during this send may have failed after the send arrived.
      if (failure.seenMillis >= sentMillis) continue
      const isNews =
        own.length === 0
          ? lastMillis < failure.sinceMillis
          : own.some(({ sinceMillis }) => sinceMillis <= failure.seenMillis)
      if (!isNews) continue
      hasEnded ||= failure.untilMillis > now
      // Its attempts continue to count.
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
                .map(({ place, topic, untilMillis }) => {
                  const isFree = hasRoom(keyOf(topic, place))
                  const waitMillis = untilMillis > now ? untilMillis - now : isFree ? 0 : Number.POSITIVE_INFINITY
                  return { topic, place, waitMillis }
                })
            )
      ),
    hasFailures: () => failures.size > 0,
    room: () => maxProbes - probed.size,
    waitFor: (topic, place) => Effect.map(Monotonic.millis, (now) => void waited.set(keyOf(topic, place), now)),
    all: Effect.map(Monotonic.millis, (now) => byTopic(at(now).values(), now)),
    strandedMillis: Effect.map(Monotonic.millis, (now) => {
      const sinces = [...at(now).values()].map(({ sinceMillis }) => sinceMillis)
      return sinces.length === 0 ? 0 : now - Math.max(answeredMillis, Math.min(...sinces))
    }),
    release: Effect.suspend(() => {
      const released = [...failures.values()]
      for (const key of failures.keys()) forget(key)
      return Effect.forEach(released, ({ place, topic }) => outages.recovered(partOf(topic, place)), {
        discard: true
      }).pipe(Effect.andThen(change))
    }),
    nextEndMillis: Effect.map(Monotonic.millis, (now) => {
      const ends = [...at(now).values()].map(({ untilMillis }) => untilMillis).filter((millis) => millis > now)
      return ends.length === 0 ? undefined : Math.min(...ends) - now
    })
  }
})
