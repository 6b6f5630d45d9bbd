import type { Trouble as TroubleSchema } from "../http/admin/OverviewApi.ts"

/** The shapes of the API's answers that several modules read, by the names of their schemas. Types alone: no browser loads this file. */
export type { JourneyView as Journey, Hop, Leg } from "../application/JourneyView.ts"
export type { Sample } from "../application/StatusView.ts"
export type { Overview } from "../http/admin/OverviewApi.ts"
export type { LaneView as Lane } from "../operations/LaneReport.ts"
export type Trouble = typeof TroubleSchema.Type
export interface FoundEvent {
  readonly eventId: string
  readonly status: string
  readonly topic: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly aggregateVersion: number
  readonly occurredAt: string
  readonly traceId: string
  readonly partition: number | null
  readonly offset: string | null
  readonly publishedAt: string | null
}
export interface EventStory extends FoundEvent {
  readonly data: unknown
  readonly headers: unknown
  readonly story: ReadonlyArray<{ readonly at: string; readonly what: string; readonly by?: string }>
}
