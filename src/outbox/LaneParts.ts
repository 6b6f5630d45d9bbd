/**
 * How much of each lane is fetched at once. Sizes are measured in batches: a lane with 200 of 1,000 events, or with 20 % of a batch's bytes, has 0.2.
 */
import { Context } from "effect"
import { type Lane, laneCount } from "./Lane.ts"
import type { LanePart, QueuedEvent, QueueSettings } from "./Queue.ts"

/** The bounds of a batch. */
export type Bounds = Pick<(typeof QueueSettings)["Service"], "batchSize" | "batchBytes">

/**
 * Bounds the events in memory between fetch and mark. All lanes share `batches`, and each lane may always have 1/64 of them. So a lane never waits
 * for room that other lanes have taken. Memory holds at most three times `batches`, with those that are being marked; or one event of each lane. A
 * probe of a failed partition may add a part of its lane.
 */
export const InFlightSettings = Context.Reference<{ readonly batches: number }>("paid-once/outbox/InFlightSettings", {
  // Two for each of eight partitions: while one is sent, the other is fetched or marked.
  defaultValue: () => ({ batches: 16 })
})

/** The size of these events. */
export const loadOf = (events: ReadonlyArray<QueuedEvent>, { batchBytes, batchSize }: Bounds): number => {
  let bytes = 0
  for (const { recordBytes } of events) bytes += recordBytes
  return Math.max(events.length / batchSize, bytes / batchBytes)
}

/**
 * Divides the remaining room equally among `lanes`. If some lanes are `deep` (their last fetch left events behind), the other lanes get no more than
 * their guaranteed 1/64. The deep lanes share the rest.
 */
export const deal = (
  lanes: ReadonlyArray<Lane>,
  options: Bounds & { readonly deep: ReadonlySet<Lane>; readonly batches: number; readonly load: number }
): ReadonlyArray<LanePart> => {
  const { batchBytes, batches, batchSize, deep, load } = options
  const least = batches / laneCount
  const equal = Math.max(0, batches - load) / lanes.length
  const deepCount = lanes.filter((lane) => deep.has(lane)).length
  const shallowCount = lanes.length - deepCount
  const shallowPart = deepCount === 0 ? equal : Math.min(equal, least)
  const deepPart = equal + (shallowCount * (equal - shallowPart)) / Math.max(1, deepCount)
  return lanes.map((lane) => {
    const part = Math.min(1, Math.max(least, deep.has(lane) ? deepPart : shallowPart))
    return { lane, events: Math.max(1, Math.floor(part * batchSize)), bytes: Math.floor(part * batchBytes) }
  })
}
