/** Tells health about a consumer's slices that hang, or that fail and come again. */
import { Cause, Effect, Exit, Metric } from "effect"
import type { Slice } from "../brokers/Broker.ts"
import * as DatabaseOutage from "../platform/DatabaseOutage.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Outages from "../platform/Outages.ts"
import * as Supervised from "../platform/Supervised.ts"
import * as Arrival from "./Arrival.ts"

const failuresTotal = Metric.counter("inbox_slice_failures_total", {
  description: "Slices that failed and came again",
  incremental: true
})

/** How often a consumer shows that none of its slices hangs. */
const stampMillis = 5_000

/** Follows the slices of the consumer, whose supervised fiber is called `fiberName`. */
export const make = Effect.fnUntraced(function* (consumer: string, fiberName: string) {
  const fibers = yield* Supervised.Fibers
  const outages = yield* Outages.Outages
  const partOf = ({ partition, topic }: Slice) => `${consumer}, ${topic} partition ${partition}`
  const failedTotal = Metric.withAttributes(failuresTotal, { consumer })
  // There at 0 from the start: an alert compares with the value before the first failure.
  yield* Metric.value(failedTotal)
  /** The start of each slice that is being applied, by its partition. */
  const startedMillis = new Map<number, number>()
  /** The last failure of a partition's slice, and how many there were in a row. */
  const failures = new Map<number, { readonly millis: number; readonly count: number }>()

  /** Counts and logs a failure of a slice, which comes again, and makes health degraded. */
  const failed = Effect.fnUntraced(function* (slice: Slice, cause: Cause.Cause<unknown>) {
    const count = (failures.get(slice.partition)?.count ?? 0) + 1
    failures.set(slice.partition, { millis: yield* Monotonic.millis, count })
    yield* Metric.update(failedTotal, 1)
    yield* fibers.update(fiberName, (state) => ({
      ...state,
      status: "restarting",
      lastError: String(Cause.squash(cause))
    }))
    // An event to blame is held as a rule, so the line names the slice by its first record.
    const { length, 0: first } = slice.records
    const line = `${consumer} could not apply a slice of ${length} records, which comes again`
    const outage = DatabaseOutage.told(cause)
    yield* Effect.andThen(
      outage === undefined ? Effect.void : outages.failed(partOf(slice), outage),
      outage === undefined ? Effect.logWarning(line, cause) : Effect.logDebug(line, cause)
    ).pipe(Arrival.annotateLogs(consumer, Arrival.make(slice.topic, slice.partition, first), count))
  })

  return {
    /** Applies the slice, and notes how it goes. */
    follow: <E>(slice: Slice, apply: Effect.Effect<void, E>): Effect.Effect<void, E> =>
      Effect.acquireUseRelease(
        Effect.map(Monotonic.millis, (now) => void startedMillis.set(slice.partition, now)),
        () => apply,
        (_, exit) =>
          Effect.suspend(() => {
            startedMillis.delete(slice.partition)
            return Exit.isSuccess(exit) && failures.delete(slice.partition)
              ? outages.recovered(partOf(slice))
              : Effect.void
          })
      ).pipe(Effect.tapCause((cause) => (Cause.hasInterruptsOnly(cause) ? Effect.void : failed(slice, cause)))),

    /**
     * Runs `stamp` now and then, for ever, unless a slice hangs or keeps failing. So an idle consumer is healthy, and one whose slice
     * never ends is not. A failure that is older than any wait between two attempts belongs to a partition that has gone to another
     * member.
     */
    stampWhileHealthy: (stamp: Effect.Effect<void>): Effect.Effect<never> =>
      Effect.flatMap(Monotonic.millis, (now) => {
        const isRecent = (millis: number) => now - millis < Supervised.stuckAfterMillis
        failures.forEach(({ millis }, partition) => {
          if (!isRecent(millis)) failures.delete(partition)
        })
        return failures.size === 0 && [...startedMillis.values()].every(isRecent) ? stamp : Effect.void
      }).pipe(Effect.andThen(Effect.sleep(stampMillis)), Effect.forever)
  }
})
