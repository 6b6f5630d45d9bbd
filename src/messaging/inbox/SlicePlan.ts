/**
 * What is to become of the records of a slice, decided before anything is done: from where the consumer is with their aggregates, and in
 * their order. Nothing here touches the database.
 */
import { Result } from "effect"
import type { Arrival, ReadableArrival } from "./Arrival.ts"
import { compare, type Move, type Place } from "./Cursors.ts"
import type { Waiting } from "./Parking.ts"
import type { Subscriber } from "./Subscriber.ts"

/** An arrival that waits, with its turn among those of its aggregate. */
export interface Turn {
  readonly arrival: Arrival
  readonly position: number
}

/** Why an aggregate is held from this arrival on. */
export type Reason =
  /** It came before the event with the version `missing`. */
  | { readonly _tag: "Gap"; readonly missing: number }
  | { readonly _tag: "Failed"; readonly error: string; readonly isFinal: boolean }

export interface Plan {
  /** The next events of their aggregates. */
  readonly apply: ReadonlyArray<ReadableArrival>
  /** Applied or given up before. */
  readonly duplicates: ReadonlyArray<Arrival>
  /** The first ones of aggregates that are held from now on. */
  readonly holds: ReadonlyArray<Turn & { readonly reason: Reason }>
  /** What waits behind a hold. */
  readonly parked: ReadonlyArray<Turn>
  /** Aggregates that were held for an event which is here now. */
  readonly completed: ReadonlyArray<string>
}

export interface Known {
  readonly places: ReadonlyMap<string, Place>
  /** The holds on the slice's aggregates, locked. */
  readonly waiting: ReadonlyMap<string, Waiting>
  /** Ids of dead letters and of what was discarded. */
  readonly buried: ReadonlySet<string>
  /** Gaps that nothing will ever fill, by {@link gapKey}. */
  readonly givenUp: ReadonlySet<string>
}

/** Names the versions from `missing` on that are not there in front of `version`. */
export const gapKey = (aggregateId: string, missing: number, version: number): string =>
  `${missing} ${version} ${aggregateId}`

export const make = (
  firstSight: Subscriber["firstSight"],
  arrivals: ReadonlyArray<Arrival>,
  { buried, givenUp, places, waiting }: Known
): Plan => {
  const apply: Array<ReadableArrival> = []
  const duplicates: Array<Arrival> = []
  const holds: Array<Turn & { readonly reason: Reason }> = []
  const parked: Array<Turn> = []
  const completed = new Set<string>()
  const states = new Map<string, { version: number | undefined; isHeld: boolean; last: number }>()
  const stateOf = (id: string) => {
    const known = states.get(id)
    if (known !== undefined) return known
    const version = places.get(id)?.version
    const hold = waiting.get(id)
    const state = { version, isHeld: hold !== undefined, last: Math.max(version ?? 0, hold?.lastPosition ?? 0) }
    states.set(id, state)
    return state
  }
  for (const arrival of arrivals) {
    const state = stateOf(arrival.aggregateId)
    if (Result.isFailure(arrival.read)) {
      if (buried.has(arrival.eventId)) {
        duplicates.push(arrival)
        continue
      }
      const turn = { arrival, position: (state.last += 1) }
      if (state.isHeld) parked.push(turn)
      else holds.push({ ...turn, reason: { _tag: "Failed", error: arrival.read.failure, isFinal: true } })
      state.isHeld = true
      continue
    }
    const event = arrival.read.success
    const version = event.aggregateVersion
    const missing = (state.version ?? 0) + 1
    const compared = compare(firstSight, state.version, version)
    const place = compared === "ahead" && givenUp.has(gapKey(arrival.aggregateId, missing, version)) ? "next" : compared
    if (place === "behind") {
      duplicates.push(arrival)
      continue
    }
    if (!state.isHeld && place === "next") {
      apply.push({ ...arrival, event })
      state.version = version
      state.last = Math.max(state.last, version)
      continue
    }
    const turn = { arrival, position: version }
    if (state.isHeld) {
      parked.push(turn)
      if (place === "next") completed.add(arrival.aggregateId)
    } else {
      holds.push({ ...turn, reason: { _tag: "Gap", missing } })
      state.isHeld = true
    }
    state.last = Math.max(state.last, version)
  }
  return { apply, duplicates, holds, parked, completed: [...completed] }
}

/** How the cursors move when these events are applied, one after another. */
export const movesOf = (events: ReadonlyArray<ReadableArrival>, places: Known["places"]): ReadonlyArray<Move> => {
  const last = new Map<string, number>()
  for (const { aggregateId, event } of events) last.set(aggregateId, event.aggregateVersion)
  return Array.from(last, ([aggregateId, to]) => ({ aggregateId, from: places.get(aggregateId)?.version, to }))
}
