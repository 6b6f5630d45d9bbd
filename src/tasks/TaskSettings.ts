/** The timing of leases, retries and polls. */
import { Context } from "effect"
import * as Backoff from "../platform/Backoff.ts"

export const TaskSettings = Context.Reference<{
  /** A task whose worker has not been heard of for so long is run by another one. */
  readonly leaseMillis: number
  /** How often a worker renews its leases: several times in a lease, for one renewal may be late. */
  readonly heartbeatMillis: number
  /** The waits between runs, where the type has none of its own; one run more than waits. */
  readonly retryDelaysMillis: ReadonlyArray<number>
  /** The net under lost wake-ups: how often a worker looks for due tasks. */
  readonly pollMillis: number
  /** How long tasks under way may take to end when the process stops. */
  readonly graceMillis: number
}>("paid-once/tasks/TaskSettings", {
  defaultValue: () => ({
    leaseMillis: 60_000,
    heartbeatMillis: 10_000,
    retryDelaysMillis: Backoff.taskDelaysMillis,
    pollMillis: 1_000,
    graceMillis: 10_000
  })
})
