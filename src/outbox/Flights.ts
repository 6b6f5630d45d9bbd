/**
 * Which lanes are ready and which are in flight. A lane is in flight from its fetch until its batches have ended and are marked.
 *
 * Its next fetch waits for the end of its batches (rule 3), and not for their mark.
 */
import { Clock, Effect, Latch } from "effect"
import * as Monotonic from "../platform/Monotonic.ts"
import { byLane, type Found } from "./Batches.ts"
import { allLanes, type Lane } from "./Lane.ts"
import { type Bounds, loadOf } from "./LaneParts.ts"
import type { StoppedLanes } from "./StoppedLanes.ts"

/** The state of a lane. It is in flight while something is open or unmarked. */
export interface Flight {
  /** Its fetch and its sends that have not ended. */
  open: number
  /** Its acknowledgements that are not marked. */
  unmarked: number
  /** How many of them belong to the round before this flight. That round ends when they are marked. */
  earlier: number
  /** Its size in batches (LaneParts.ts). */
  load: number
  /** None of its batches was acknowledged or refused: fetching the lane again at once would find the same events. */
  isStuck: boolean
  /** A fetch, a batch, a mark or the query for its heads ended in a defect. */
  isFailed: boolean
  /** The lane was woken since its fetch: it may have new events. */
  isWoken: boolean
}

const landed: Flight = { open: 0, unmarked: 0, earlier: 0, load: 0, isStuck: false, isFailed: false, isWoken: false }
const isInFlight = ({ open, unmarked }: Flight) => open + unmarked > 0

/** Lanes with a backlog that one fetch takes. Each may bring a whole batch, which Node reads at once while the senders wait. */
export const deepLimit = 4

export const make = Effect.fnUntraced(function* (options: {
  /** Whether this process owns the lane now. */
  readonly owns: (lane: Lane) => boolean
  /** Takes the lane for a flight, if this process owns it and may keep it. */
  readonly enter: (lane: Lane) => boolean
  /** Returns the lane after its flight. */
  readonly leave: (lane: Lane) => void
  readonly stopped: StoppedLanes
}) {
  const clock = yield* Clock.Clock
  const isReady = yield* Latch.make(false)
  const haveLanded = yield* Latch.make(false)
  const ready = new Set<Lane>()
  const deep = new Set<Lane>()
  // Made once: a look takes all lanes hundreds of times in a second, and most of them find nothing.
  const flights = allLanes.map((): Flight => ({ ...landed }))
  const of = (lane: Lane) => flights[lane]!
  let isStopping = false

  /** Says that the lanes may have something to send. One that can't be fetched now becomes ready when it can. A turn may begin before this returns. */
  const wake = (lanes: ReadonlyArray<Lane>) => {
    const now = Monotonic.millisUnsafe(clock)
    for (const lane of lanes) {
      const flight = of(lane)
      flight.isWoken = true
      if (flight.open === 0 && !options.stopped.isWaiting(lane, now)) ready.add(lane)
    }
    if (ready.size > 0) isReady.openUnsafe()
  }
  const hasMore = (lane: Lane, { isStuck, isWoken }: Flight) => isWoken || (deep.has(lane) && !isStuck)
  const land = (lane: Lane, flight: Flight) => {
    options.leave(lane)
    // It may have become ready before it failed.
    if (flight.isFailed) ready.delete(lane)
    else options.stopped.forget(lane)
    flight.isFailed = false
    if (hasMore(lane, flight)) wake([lane])
    if (isStopping && !flights.some(isInFlight)) haveLanded.openUnsafe()
  }
  /** Begins the lane's flight. If the lane waits only for its mark, the same flight goes on, and the lane is not given up in between. */
  const begin = (lane: Lane): boolean => {
    const flight = of(lane)
    if (flight.open > 0 || flight.isFailed || !options.enter(lane)) return false
    if (isInFlight(flight)) options.leave(lane)
    flight.open = 1
    flight.earlier = flight.unmarked
    flight.load = 0
    flight.isStuck = flight.isWoken = false
    return true
  }

  return {
    wake,
    /** Opened when a lane becomes ready, and for whatever else needs a turn: acknowledgements, a stop, a sign of life. */
    isReady,
    hasReady: () => ready.size > 0,
    /**
     * Takes the lanes that are ready, without a batch in flight, and owned by this process, in the order in which they became ready. Of the deep
     * lanes it takes {@link deepLimit} at most; the others stay ready.
     */
    board: (): ReadonlyArray<Lane> => {
      const lanes: Array<Lane> = []
      let deepLanes = 0
      for (const lane of ready) {
        if (deep.has(lane) && ++deepLanes > deepLimit) continue
        ready.delete(lane)
        if (begin(lane)) lanes.push(lane)
      }
      if (ready.size > 0) isReady.openUnsafe()
      return lanes
    },
    /** The lanes whose last fetch left events behind: they have a backlog. */
    deep,
    /** The lanes were fetched: `cut` left events behind. */
    fetched: (lanes: ReadonlyArray<Lane>, { batches, cut }: Found, bounds: Bounds) => {
      for (const lane of lanes) if (!cut.has(lane)) deep.delete(lane)
      for (const lane of cut) deep.add(lane)
      for (const [lane, events] of batches.flatMap((batch) => [...byLane(batch.events)])) {
        const flight = of(lane)
        flight.load += loadOf(events, bounds)
        flight.isStuck = true
      }
    },
    /** The lane belongs to another process now. */
    forget: (lane: Lane) => void deep.delete(lane),
    of,
    /** Adds one item that each lane's next fetch waits for. */
    open: (lanes: ReadonlyArray<Lane>) => {
      for (const lane of lanes) of(lane).open++
    },
    /** Removes one of them. */
    close: (lanes: ReadonlyArray<Lane>) => {
      for (const lane of lanes) {
        const flight = of(lane)
        if (--flight.open > 0) continue
        if (flight.unmarked === 0) land(lane, flight)
        else if (hasMore(lane, flight)) wake([lane])
      }
    },
    /** Keeps the lanes in flight until the mark of one acknowledgement more. */
    owe: (lanes: ReadonlyArray<Lane>) => {
      for (const lane of lanes) of(lane).unmarked++
    },
    /** An acknowledgement of each lane is marked, or its mark has failed. */
    settle: (lanes: ReadonlyArray<Lane>) => {
      for (const lane of lanes) {
        const flight = of(lane)
        if (--flight.unmarked === 0 && flight.open === 0) land(lane, flight)
        else if (flight.earlier > 0 && --flight.earlier === 0 && !flight.isFailed) options.stopped.forget(lane)
      }
    },
    /** The size of all lanes in flight. */
    load: () => flights.reduce((sum, flight) => (isInFlight(flight) ? sum + flight.load : sum), 0),
    /** Whether the next send may have events of the lane. */
    isOurs: (lane: Lane) => !isStopping && options.owns(lane) && !of(lane).isFailed,
    isStopping: () => isStopping,
    /** Starts no more sends for any lane, and waits until no lane is in flight. */
    stop: Effect.suspend(() => {
      isStopping = true
      // Nobody waits for a lane any more.
      isReady.openUnsafe()
      return flights.some(isInFlight) ? haveLanded.await : Effect.void
    })
  }
})

export type Flights = Effect.Success<ReturnType<typeof make>>
