import { Effect } from "effect"
import { endToEnd } from "./EndToEnd.ts"
import * as Targets from "./Targets.ts"

endToEnd("embedded broker", Effect.succeed(Targets.embedded))
