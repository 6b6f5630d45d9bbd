/** Lanes whose last round ended in a defect. Each waits by itself, longer after each failure in a row, and the other lanes continue. */
import { type Cause, Effect, Metric } from "effect"
import * as Backoff from "../platform/Backoff.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import type { Lane } from "./Lane.ts"

/** See {@link make}. */
export interface StoppedLane {
  readonly lane: Lane
  /** Failures in a row. */
  readonly attempt: number
}

const laneFailuresTotal = Metric.counter("outbox_lane_failures_total", {
  description: "Rounds of a lane that ended in a defect, after which it waits",
  incremental: true
})

/** `wakeAfter` is told how long a lane waits. */
export const make = Effect.fnUntraced(function* (options: {
  readonly owns: (lane: Lane) => boolean
  readonly wakeAfter: (millis: number) => Effect.Effect<void>
}) {
  const stopped = new Map<Lane, { readonly attempt: number; readonly untilMillis: number }>()
  // Set to 0 at the start, because an alert rule compares with the value before the first failure.
  yield* Metric.value(laneFailuresTotal)
  return {
    failed: Effect.fnUntraced(function* (lane: Lane, cause: Cause.Cause<unknown>) {
      const attempt = (stopped.get(lane)?.attempt ?? 0) + 1
      const waitMillis = yield* Backoff.millisAfter(Backoff.lane, attempt)
      // If the lane was lost meanwhile, its new owner reports it.
      if (options.owns(lane)) {
        stopped.set(lane, { attempt, untilMillis: (yield* Monotonic.millis) + waitMillis })
        yield* options.wakeAfter(waitMillis)
      }
      yield* Metric.update(laneFailuresTotal, 1)
      yield* Effect.logError(`lane ${lane} failed; next try in ${Math.round(waitMillis)} ms`, cause)
    }),
    /** A round of the lane ended without a defect, or another process owns the lane now. */
    forget: (lane: Lane) => void stopped.delete(lane),
    /** Whether the lane still waits. */
    isWaiting: (lane: Lane, nowMillis: number) => (stopped.get(lane)?.untilMillis ?? 0) > nowMillis,
    list: (): ReadonlyArray<StoppedLane> => [...stopped].map(([lane, { attempt }]) => ({ lane, attempt }))
  }
})

export type StoppedLanes = Effect.Success<ReturnType<typeof make>>
