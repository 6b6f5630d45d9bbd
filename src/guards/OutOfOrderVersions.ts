/**
 * Aggregates whose versions fall in the queue: to send them would break their order for good. Who wrote them gave a version that is not above those
 * before it. Nothing of them is sent, and the lane goes on without them, until somebody has taken the wrong row away.
 *
 * Rule 1, where it is cheap to see: a fall is found where one fetch sees both events. Versions need not be contiguous: the late mark of a
 * dispatcher that lost its lane may take events from behind one that is parked, and when that one comes back there is a hole behind it. What a
 * hole lacks was acknowledged, together with everything in front of it.
 */
import { Effect, type Latch } from "effect"
import type { Lane } from "../outbox/Lane.ts"
import type { Aggregate, OutboxQueueService, QueuedEvent } from "../outbox/OutboxQueue.ts"
import * as Monotonic from "../platform/Monotonic.ts"

/** How often it is looked whether they still are, in a turn of their lane: as often as the poll comes by itself. */
export const lookMillis = 1_000
/** And so many times as long as the look took, which reads all of the lane: so it costs a tenth at most. */
const lookFactor = 10

/** With more of them in a lane it is no single aggregate's business any more: the lane stops, and says so. */
const aggregateLimit = 1_000

/** Unlike for any other aggregate: no text of Postgres has a NUL in it. */
export const keyOf = ({ aggregateId, aggregateType }: Aggregate): string => `${aggregateType}\0${aggregateId}`

export interface OutOfOrderVersions {
  /** Those of the lane, which are not to be fetched. Looks now and then whether they are in order again. */
  readonly of: (lane: Lane) => Effect.Effect<ReadonlyArray<Aggregate>>
  /** The events that may be sent, which are in order. Of the others it takes note. */
  readonly sift: (lane: Lane, events: ReadonlyArray<QueuedEvent>) => Effect.Effect<ReadonlyArray<QueuedEvent>>
  /** How many there are in which lane, as of the lane's last turn here, for health. */
  readonly counts: Effect.Effect<ReadonlyArray<{ readonly lane: Lane; readonly aggregates: number }>>
}

/** `found` is opened when there is one more of them to look at. */
export const make = (queue: Pick<OutboxQueueService, "misordered">, found: Latch.Latch): OutOfOrderVersions => {
  const known = new Map<Lane, { readonly aggregates: ReadonlyMap<string, Aggregate>; readonly lookAtMillis: number }>()

  const note = (lane: Lane, aggregates: ReadonlyMap<string, Aggregate>, lookAtMillis: number) => {
    if (aggregates.size === 0) known.delete(lane)
    else known.set(lane, { aggregates, lookAtMillis })
    return [...aggregates.values()]
  }

  const look = Effect.fnUntraced(function* (lane: Lane, aggregates: ReadonlyArray<Aggregate>, began: number) {
    const still = new Map((yield* queue.misordered(lane, aggregates)).map((one) => [keyOf(one), one]))
    const ended = yield* Monotonic.millis
    for (const { aggregateId, aggregateType } of aggregates.filter((one) => !still.has(keyOf(one)))) {
      yield* Effect.logInfo("an aggregate is sent again: its versions rise").pipe(
        Effect.annotateLogs({ lane, aggregate_type: aggregateType, aggregate_id: aggregateId })
      )
    }
    return note(lane, still, ended + Math.max(lookMillis, lookFactor * (ended - began)))
  })

  return {
    of: Effect.fnUntraced(function* (lane) {
      const those = known.get(lane)
      if (those === undefined) return []
      const aggregates = [...those.aggregates.values()]
      const now = yield* Monotonic.millis
      if (now < those.lookAtMillis) return aggregates
      return yield* Effect.catchCause(look(lane, aggregates, now), (cause) =>
        // A lane so long that the look takes more time than there is goes on as it was.
        Effect.logWarning("aggregates that are not sent could not be looked at", cause).pipe(
          Effect.annotateLogs({ lane }),
          Effect.as(note(lane, those.aggregates, now + lookFactor * lookMillis))
        )
      )
    }),
    sift: Effect.fnUntraced(function* (lane, events) {
      const fallen = fallenIn(events)
      if (fallen.size === 0) return events
      const all = new Map<string, Aggregate>([...(known.get(lane)?.aggregates ?? []), ...fallen])
      if (all.size > aggregateLimit) {
        return yield* Effect.die(
          new Error(
            `the versions of more than ${aggregateLimit} aggregates of the lane do not rise: nothing of it is sent`
          )
        )
      }
      note(lane, all, (yield* Monotonic.millis) + lookMillis)
      yield* found.open
      for (const { aggregateId, aggregateType, sentence } of fallen.values()) {
        yield* Effect.logError(`an aggregate is not sent any more, for its versions do not rise: ${sentence}`).pipe(
          Effect.annotateLogs({ lane, aggregate_type: aggregateType, aggregate_id: aggregateId })
        )
      }
      return events.filter((event) => !fallen.has(keyOf(event)))
    }),
    counts: Effect.sync(() => [...known].map(([lane, { aggregates }]) => ({ lane, aggregates: aggregates.size })))
  }
}

/** The aggregates whose versions fall in `events`, with where. That the events themselves are out of order is a defect. */
const fallenIn = (
  events: ReadonlyArray<QueuedEvent>
): ReadonlyMap<string, Aggregate & { readonly sentence: string }> => {
  const last = new Map<string, QueuedEvent>()
  const fallen = new Map<string, Aggregate & { readonly sentence: string }>()
  for (const event of events) {
    const key = keyOf(event)
    const before = last.get(key)
    if (before !== undefined && event.aggregateVersion <= before.aggregateVersion) {
      const { aggregateId, aggregateType } = event
      const sentence = `${aggregateType} ${aggregateId}: version ${event.aggregateVersion} follows ${before.aggregateVersion} in the queue`
      if (event.seq <= before.seq) throw new Error(sentence)
      fallen.set(key, { aggregateType, aggregateId, sentence })
    }
    last.set(key, event)
  }
  return fallen
}
