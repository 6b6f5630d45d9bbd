/** The handlers of all groups of {@link adminGroups}. */
import { Layer } from "effect"
import * as JourneyHandlers from "./JourneyHandlers.ts"
import * as LiveHandlers from "./LiveHandlers.ts"

export const layer = Layer.mergeAll(JourneyHandlers.layer, LiveHandlers.layer)
