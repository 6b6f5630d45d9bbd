/** Shared parts of a journey's hops: what their states follow from, and the words for what waits. */
import type { Lag } from "../../operations/reports/ConsumerLag.ts"
import type { Skip } from "../../operations/Skips.ts"
import type { Pause } from "../../operations/pauses/Pauses.ts"
import type { Facts } from "./JourneyFacts.ts"
import type { Hop } from "./JourneyView.ts"

/** What a hop's state follows from. */
export interface Surroundings {
  readonly facts: Facts
  readonly consumers: ReadonlyArray<string>
  /** `consumer eventId` of what is applied, also where retention has dropped its mark. */
  readonly applied: ReadonlySet<string>
  /** Which of the events an operator skipped for which consumer. */
  readonly skips: ReadonlyArray<Skip>
  readonly paused: ReadonlyArray<Pause>
  readonly lane: number
  /** The process that owns the lane. */
  readonly laneOwner: string | null
  readonly lags: ReadonlyArray<Lag>
}

/** What takes no longer is under way, and waits for nothing. */
const underWayMillis = 2_000

const untold = {
  after: null,
  at: null,
  millis: null,
  since: null,
  process: null,
  traceId: null,
  facts: [],
  why: null,
  frees: null,
  page: null,
  command: null
}

/** A hop with these fields; what is not given is not known. */
export const hop = (fields: Pick<Hop, "id" | "kind" | "title" | "state"> & Partial<Hop>): Hop => ({
  ...untold,
  ...fields
})

/** A fact that is left out where it is not known. */
export const fact = (name: string, value: string | number | null): Hop["facts"] =>
  value === null ? [] : [{ name, value: String(value) }]

export const isYoung = (now: string, at: string | null) =>
  at !== null && Date.parse(now) - Date.parse(at) < underWayMillis

export const pauseOf = ({ paused }: Surroundings, kind: Pause["kind"], name: string) =>
  paused.find((pause) => pause.kind === kind && pause.name === name)

export const pausedHop = (
  { actor, kind, name, reason }: Pause,
  command: string
): Pick<Hop, "why" | "frees" | "command"> => ({
  why: `${actor} has paused the ${kind} ${name}: ${reason}`,
  frees: "an operator resumes it",
  command
})

export const triedAt = (at: string | null) => (at === null ? "it is tried again" : `the next attempt is at ${at}`)
