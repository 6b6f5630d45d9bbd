/** Mistakes in the console's own code, which the browser runs. */
import type { Mutant } from "./mutants.ts"

const live = "test/console/Live.test.ts"
const travel = "test/console/Travel.test.ts"

export const consoleMutants: ReadonlyArray<Mutant> = [
  {
    name: "console-never-stale",
    breaks: "a page shows figures of a dead service as those of now",
    file: "src/console/live.js",
    find: 'if (connection === "live" && performance.now() - heardAt > staleMillis)',
    replace: "if (connection === undefined)",
    seenBy: { file: live, test: "a service that dies is said to be away" }
  },
  {
    name: "console-stream-from-now",
    breaks: "a stream that is taken up again misses the samples in between",
    file: "src/console/live.js",
    find: "last === undefined ?",
    replace: "true ?",
    seenBy: { file: live, test: "tabs of a browser read one stream" }
  },
  {
    name: "console-all-hops-wait",
    breaks: "each consumer of an event that is not sent yet reads as held up",
    file: "src/console/pages/orders/Leg.js",
    find: 'hop.state === "waiting" && hop.after !== null && !done.has(hop.after)',
    replace: "false",
    seenBy: { file: travel, test: "an event that waits says why" }
  },
  {
    name: "console-load-unseen",
    breaks: "a hidden page goes on placing orders",
    file: "src/console/traffic.js",
    find: 'document.visibilityState === "hidden" && traffic.get().perSecond > 0',
    replace: "traffic.get().perSecond < 0",
    seenBy: { file: travel, test: "load is made of real orders" }
  }
]
