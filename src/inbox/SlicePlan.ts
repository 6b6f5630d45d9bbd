/**
 * What is to become of the records of a slice, decided before anything is done: from where the consumer is with their aggregates, and in
 * their order. Nothing here touches the database.
 */
import { Result } from "effect"
import type { ConsumedRecord } from "../brokers/Broker.ts"
import { maxVersion } from "../brokers/Envelope.ts"
import type { Arrival, ReadableArrival } from "./Arrival.ts"
import { compare, keyOf, type Move, type Place } from "./Cursors.ts"
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

export type Failure = Extract<Reason, { readonly _tag: "Failed" }>

/** Whose handlers have failed, and with what. */
export type Failures = ReadonlyMap<ConsumedRecord, Failure>

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

/** A hold as a slice finds it. */
export interface Waiting {
  readonly status: "retrying" | "dead" | "gap"
  /** The last turn that is taken. */
  readonly lastPosition: number
}

export interface Known {
  /** By {@link keyOf}. */
  readonly places: ReadonlyMap<string, Place>
  /** The holds on the slice's aggregates, locked, by the aggregates' ids. */
  readonly waiting: ReadonlyMap<string, Waiting>
  /** Ids of dead letters and of what was discarded. */
  readonly buried: ReadonlySet<string>
  /** Gaps that nothing will ever fill, by {@link gapKey}. */
  readonly givenUp: ReadonlySet<string>
  /** What is not tried any more, but held. */
  readonly failures: Failures
}

/** The last turn there is, behind every version: records that can't be read and come after it share it, in the order of their offsets. */
const lastTurn = maxVersion + 1

/** The arrival's aggregate. */
export const aggregateOf = ({ aggregateId, read }: Arrival) => ({
  aggregateId,
  aggregateType: Result.isSuccess(read) ? read.success.aggregateType : undefined
})

/** Names the versions from `missing` on that are not there in front of `version`. */
export const gapKey = (arrival: Arrival, missing: number, version: number): string =>
  `${missing} ${version} ${keyOf(aggregateOf(arrival))}`

export const make = (
  firstSight: Subscriber["firstSight"],
  arrivals: ReadonlyArray<Arrival>,
  { buried, failures, givenUp, places, waiting }: Known
): Plan => {
  const apply: Array<ReadableArrival> = []
  const duplicates: Array<Arrival> = []
  const holds: Array<Turn & { readonly reason: Reason }> = []
  const parked: Array<Turn> = []
  const completed = new Set<string>()
  const versions = new Map<string, number | undefined>()
  const states = new Map<string, { isHeld: boolean; last: number }>()
  for (const arrival of arrivals) {
    const id = arrival.aggregateId
    const key = keyOf(aggregateOf(arrival))
    if (!versions.has(key)) versions.set(key, places.get(key)?.version)
    const hold = waiting.get(id)
    const state = states.get(id) ?? { isHeld: hold !== undefined, last: hold?.lastPosition ?? 0 }
    states.set(id, state)
    const cursor = versions.get(key)
    state.last = Math.max(state.last, cursor ?? 0)
    if (Result.isFailure(arrival.read)) {
      if (buried.has(arrival.eventId)) {
        duplicates.push(arrival)
        continue
      }
      const turn = { arrival, position: (state.last = Math.min(state.last + 1, lastTurn)) }
      if (state.isHeld) parked.push(turn)
      else holds.push({ ...turn, reason: { _tag: "Failed", error: arrival.read.failure, isFinal: true } })
      state.isHeld = true
      continue
    }
    const event = arrival.read.success
    const version = event.aggregateVersion
    const missing = (cursor ?? 0) + 1
    const compared = compare(firstSight, cursor, version)
    const place = compared === "ahead" && givenUp.has(gapKey(arrival, missing, version)) ? "next" : compared
    if (place === "behind") {
      duplicates.push(arrival)
      continue
    }
    const failure = failures.get(arrival.record)
    if (!state.isHeld && place === "next" && failure !== undefined) {
      holds.push({ arrival, position: version, reason: failure })
      state.isHeld = true
      state.last = Math.max(state.last, version)
      continue
    }
    if (!state.isHeld && place === "next") {
      apply.push({ ...arrival, event })
      versions.set(key, version)
      state.last = Math.max(state.last, version)
      continue
    }
    const turn = { arrival, position: version }
    if (state.isHeld) {
      parked.push(turn)
      if (place === "next") completed.add(id)
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
  const last = new Map<string, Move>()
  for (const { aggregateId, event } of events) {
    const aggregate = { aggregateId, aggregateType: event.aggregateType }
    const key = keyOf(aggregate)
    last.set(key, { ...aggregate, from: places.get(key)?.version, to: event.aggregateVersion })
  }
  return [...last.values()]
}
