/** Counts what became of events, after the commit. */
import { Effect, Metric } from "effect"

/** `parked` events wait behind a hold, its head included. `dead` events are not tried any more, and wait for an operator. */
export type Outcome = "applied" | "duplicate" | "parked" | "dead"

export const outcomes: ReadonlyArray<Outcome> = ["applied", "duplicate", "parked", "dead"]

export const eventsTotal = Metric.counter("inbox_events_total", {
  description: "Events by what became of them",
  incremental: true
})

export const ofOutcome = (consumer: string, outcome: Outcome) =>
  Metric.withAttributes(eventsTotal, { consumer, outcome })

export type Counts = { readonly [Name in Outcome]: number }

export const none: Counts = { applied: 0, duplicate: 0, parked: 0, dead: 0 }

export const add = (a: Counts, b: Counts): Counts => ({
  applied: a.applied + b.applied,
  duplicate: a.duplicate + b.duplicate,
  parked: a.parked + b.parked,
  dead: a.dead + b.dead
})

export const count = (consumer: string, counts: Counts): Effect.Effect<void> =>
  Effect.forEach(
    outcomes,
    (outcome) => (counts[outcome] === 0 ? Effect.void : Metric.update(ofOutcome(consumer, outcome), counts[outcome])),
    { discard: true }
  )
