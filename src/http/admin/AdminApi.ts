/** The groups of the operators' API, under /admin. `../Api.ts` adds them to the service's, and `AdminHandlers.ts` has their handlers. */
import { JourneyApi } from "./JourneyApi.ts"
import { LiveApi } from "./OverviewApi.ts"

export const adminGroups = [JourneyApi, LiveApi] as const
