import { Layer } from "effect"
import { TaskSettings } from "../../../src/tasks/TaskSettings.ts"
import { taskSettings } from "../Parts.ts"
import type { Mistake } from "./Mistake.ts"

/** A lease that does not expire within a case. */
const yearMillis = 366 * 86_400_000

export const heartbeatLessClaim: Mistake = {
  name: "heartbeat-less-claim",
  what: "The claim says that the task runs, and no more: how long the worker has it is first said by its first heartbeat.",
  why: "A worker that lives sends heartbeats, and one that is silent for long is dead. But one that dies before its first heartbeat was never heard of: nobody misses it, and its task runs for ever.",
  rule: "The claim itself sets the lease.",
  read: "src/tasks/TaskClaim.ts",
  plant: (real) => ({
    taskClaim: Layer.provide(real.taskClaim, Layer.succeed(TaskSettings, { ...taskSettings, leaseMillis: yearMillis }))
  })
}
