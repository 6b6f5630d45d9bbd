/**
 * Decides what becomes of the records of a slice, in their order, from the consumer's cursors and holds. Nothing here touches the
 * database.
 */
import { Result } from "effect"
import type { ConsumedRecord } from "../brokers/Broker.ts"
import { maxVersion } from "../brokers/Envelope.ts"
import { aggregateOf, type Arrival, type ReadableArrival } from "./Arrival.ts"
import { aggregateKey, compare, type CursorMove, type CursorState } from "./Cursors.ts"
import type { Subscriber } from "./Subscriber.ts"

/** An arrival that waits behind a hold, or is its head. */
export interface HeldArrival {
  readonly arrival: Arrival
  /** Its place in the order in which its aggregate's held arrivals are applied: the version, where the record can be read. */
  readonly position: number
}

/** Why an aggregate is held from this arrival on. */
export type Reason =
  /** The event with the version `missing` has not come. */
  | { readonly _tag: "Gap"; readonly missing: number }
  | { readonly _tag: "Failed"; readonly error: string; readonly isPermanent: boolean }

export type Failure = Extract<Reason, { readonly _tag: "Failed" }>

/** The records whose handlers have failed, and their errors. */
export type Failures = ReadonlyMap<ConsumedRecord, Failure>

export interface Plan {
  /** The next events of their aggregates. */
  readonly apply: ReadonlyArray<ReadableArrival>
  /** Records that were applied or given up before. */
  readonly duplicates: ReadonlyArray<Arrival>
  /** The first arrivals of aggregates that are held from now on. */
  readonly holds: ReadonlyArray<HeldArrival & { readonly reason: Reason }>
  /** Arrivals that wait behind a hold. */
  readonly parked: ReadonlyArray<HeldArrival>
  /** The ids of aggregates that are held for an event which is in this slice. */
  readonly completed: ReadonlyArray<string>
}

/** A hold as a slice finds it. */
export interface HoldState {
  readonly status: "retrying" | "dead" | "gap"
  /** The largest position that is taken behind the hold; 0 where nothing is parked. */
  readonly lastPosition: number
}

/** The consumer's state for the aggregates of a slice. */
export interface Known {
  /** By {@link aggregateKey}. */
  readonly cursors: ReadonlyMap<string, CursorState>
  /** The holds on the slice's aggregates, locked, by the aggregates' ids. */
  readonly holds: ReadonlyMap<string, HoldState>
  /** Ids of dead letters and of discarded records. */
  readonly buried: ReadonlySet<string>
  /** Gaps that no event will ever fill, by {@link gapKey}. */
  readonly givenUp: ReadonlySet<string>
  /** Records that are held without another attempt. */
  readonly failures: Failures
}

/** The last position, behind every version. Unreadable records share it, in the order of their offsets. */
const endPosition = maxVersion + 1

/** Names the gap of the versions from `missing` on, in front of `version`. */
export const gapKey = (arrival: Arrival, missing: number, version: number): string =>
  `${missing} ${version} ${aggregateKey(aggregateOf(arrival))}`

export const make = (firstSight: Subscriber["firstSight"], arrivals: ReadonlyArray<Arrival>, known: Known): Plan => {
  const apply: Array<ReadableArrival> = []
  const duplicates: Array<Arrival> = []
  const holds: Array<HeldArrival & { readonly reason: Reason }> = []
  const parked: Array<HeldArrival> = []
  const completed = new Set<string>()
  /** Cursors and holds as the records so far leave them. */
  const versions = new Map<string, number | undefined>()
  const states = new Map<string, { isHeld: boolean; last: number }>()
  for (const arrival of arrivals) {
    const id = arrival.aggregateId
    const key = aggregateKey(aggregateOf(arrival))
    if (!versions.has(key)) versions.set(key, known.cursors.get(key)?.version)
    const found = known.holds.get(id)
    const state = states.get(id) ?? { isHeld: found !== undefined, last: found?.lastPosition ?? 0 }
    states.set(id, state)
    const cursor = versions.get(key)
    state.last = Math.max(state.last, cursor ?? 0)
    /** Parks the arrival; it is the head of a new hold where its aggregate is not held yet. */
    const wait = (position: number, reason: Reason) => {
      if (state.isHeld) parked.push({ arrival, position })
      else holds.push({ arrival, position, reason })
      state.isHeld = true
      state.last = Math.max(state.last, position)
    }
    if (Result.isFailure(arrival.read)) {
      if (known.buried.has(arrival.eventId)) duplicates.push(arrival)
      else {
        wait(Math.min(state.last + 1, endPosition), { _tag: "Failed", error: arrival.read.failure, isPermanent: true })
      }
      continue
    }
    const event = arrival.read.success
    const version = event.aggregateVersion
    const missing = (cursor ?? 0) + 1
    const compared = compare(firstSight, cursor, version)
    const order = compared === "ahead" && known.givenUp.has(gapKey(arrival, missing, version)) ? "next" : compared
    if (order === "behind") {
      duplicates.push(arrival)
      continue
    }
    const failure = order === "next" ? known.failures.get(arrival.record) : undefined
    if (state.isHeld) {
      if (order === "next") completed.add(id)
      wait(version, { _tag: "Gap", missing })
    } else if (failure !== undefined) wait(version, failure)
    else if (order === "ahead") wait(version, { _tag: "Gap", missing })
    else {
      apply.push({ ...arrival, event })
      versions.set(key, version)
      state.last = Math.max(state.last, version)
    }
  }
  return { apply, duplicates, holds, parked, completed: [...completed] }
}

/** How the cursors move when these events are applied, one after another. */
export const movesOf = (
  firstSight: Subscriber["firstSight"],
  events: ReadonlyArray<ReadableArrival>,
  cursors: Known["cursors"]
): ReadonlyArray<CursorMove> => {
  const moves = new Map<string, CursorMove>()
  for (const { aggregateId, event } of events) {
    const aggregate = { aggregateId, aggregateType: event.aggregateType }
    const key = aggregateKey(aggregate)
    const { aggregateVersion: to } = event
    const from = cursors.get(key)?.version
    const { gaps = [], to: before = from } = moves.get(key) ?? {}
    const after = before ?? (firstSight === "any-version" ? to - 1 : 0)
    const more = to > after + 1 ? [{ after, until: to - 1 }] : []
    moves.set(key, { ...aggregate, from, to, gaps: [...gaps, ...more] })
  }
  return [...moves.values()]
}
