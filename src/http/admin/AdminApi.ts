/** The groups of the operators' API, under /admin. `../Api.ts` adds them to the service's, and `AdminHandlers.ts` has their handlers. */
import { SessionApi } from "./SessionApi.ts"

export const adminGroups = [SessionApi] as const
