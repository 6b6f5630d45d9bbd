import type { Trouble as TroubleSchema } from "../http/admin/OverviewApi.ts"

/** The shapes of the API's answers that several modules read, by the names of their schemas. Types alone: no browser loads this file. */
export type { JourneyView as Journey, Hop, Leg } from "../application/views/JourneyView.ts"
export type { Sample } from "../application/views/StatusView.ts"
export type { Overview } from "../http/admin/OverviewApi.ts"
export type { Found as FoundEvent } from "../operations/reports/EventSearch.ts"
export type { LaneView as Lane } from "../operations/reports/LaneReport.ts"
export type { Details as EventDetails } from "../operations/reports/OutboxReport.ts"
export type Trouble = typeof TroubleSchema.Type
