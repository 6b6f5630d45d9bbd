import { refillBesideService } from "./Refill.ts"
import * as Targets from "./Targets.ts"

refillBesideService("with the embedded broker", () => Targets.embedded)
