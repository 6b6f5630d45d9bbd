import { rebuildUnderLoad } from "./Rebuild.ts"
import * as Targets from "./Targets.ts"

rebuildUnderLoad("with the embedded broker", () => Targets.embedded)
