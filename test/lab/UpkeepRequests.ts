/** The upkeep of the tables that are kept by days: days made ahead, and dropped past their retention. */
import { Effect } from "effect"
import type { Parts } from "./Parts.ts"
import { make, type Request } from "./Requests.ts"

/** One round of it, as `paid-once maintenance run` does: the service's own loop has nothing else to do. Nobody asks again for one that failed. */
export const upkeep = (round: Parts["upkeep"]): Request =>
  make("run the upkeep", -1, false, Effect.as(Effect.orDie(round), { _tag: "Done" } as const))
