import { Effect } from "effect"
import { stopping } from "./Stop.ts"
import * as Targets from "./Targets.ts"

stopping("embedded broker", Effect.succeed(Targets.embedded))
