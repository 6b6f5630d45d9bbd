/** The handlers of all groups of {@link adminGroups}. */
import { Layer } from "effect"
import * as SessionHandlers from "./SessionHandlers.ts"

export const layer = Layer.mergeAll(SessionHandlers.layer)
