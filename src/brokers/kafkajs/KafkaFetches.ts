/**
 * Tells batches of the current generation of a group from batches of an older one.
 *
 * When a partition's leader moves, kafkajs rejoins the group while fetches of the old generation are in flight. It hands over a batch of
 * such a fetch as if it followed the committed offset, and skips the records between the two. On three nodes this lost hundreds of
 * records in half a minute. So no batch is taken until the last of these fetches has ended.
 */
import type { Clock } from "effect"
import * as Monotonic from "../../platform/Monotonic.ts"

/** The fetches of one consumer, by the broker's node id. Its methods never throw: kafkajs calls them in the middle of its loop. */
export interface Fetches {
  readonly began: (nodeId: number) => void
  readonly ended: (nodeId: number) => void
  /** The consumer has joined: every fetch in flight belongs to the generation before. */
  readonly joined: () => void
  /** Whether a fetch of an older generation may still deliver a batch. */
  readonly isStale: () => boolean
}

/** `longestMillis` is how long a fetch can be in flight. A broker that is gone never ends its fetch, so an older one no longer counts. */
export const make = (clock: Clock.Clock, longestMillis: number): Fetches => {
  interface Fetch {
    readonly beganMillis: number
  }
  const inFlight = new Map<number, Fetch>()
  const stale = new Map<number, Fetch>()
  return {
    began: (nodeId) => {
      inFlight.set(nodeId, { beganMillis: Monotonic.millisUnsafe(clock) })
      stale.delete(nodeId)
    },
    ended: (nodeId) => {
      const fetch = inFlight.get(nodeId)
      // kafkajs hands the batches of a fetch over within this macrotask.
      setImmediate(() => {
        if (inFlight.get(nodeId) === fetch) inFlight.delete(nodeId)
        if (stale.get(nodeId) === fetch) stale.delete(nodeId)
      })
    },
    joined: () => inFlight.forEach((fetch, nodeId) => stale.set(nodeId, fetch)),
    isStale: () => {
      const oldestMillis = Monotonic.millisUnsafe(clock) - longestMillis
      stale.forEach(({ beganMillis }, nodeId) => (beganMillis < oldestMillis ? stale.delete(nodeId) : undefined))
      return stale.size > 0
    }
  }
}
