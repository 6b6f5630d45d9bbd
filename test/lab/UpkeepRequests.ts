/** The upkeep of the daily tables: days made ahead, and dropped past their retention. */
import { Effect } from "effect"
import type { Parts } from "./Parts.ts"
import { make, type Request } from "./Requests.ts"

/** One round of upkeep, as `paid-once maintenance run` does it; the service's own loop does no more. A failed round is not repeated. */
export const upkeep = (round: Parts["upkeep"]): Request =>
  make("run the upkeep", -1, false, Effect.as(Effect.orDie(round), { _tag: "Done" } as const))
