/**
 * Finds the event that is to blame where a slice failed, and applies all others.
 *
 * The slice is applied again in parts: the events before the suspect, the suspect alone, and the rest; in halves where there is no suspect. An event
 * that fails alone is held, with everything that comes for its aggregate, and the partition goes on. A failing event costs a few
 * transactions this way, and not one for each event of its slice.
 *
 * Slices of several partitions that write the same rows, each in the order of its own records, can deadlock. Postgres ends one of the
 * transactions after a second (`deadlock_timeout`), and the same slice again would mostly end in the next deadlock. For a while the consumer's
 * events are then applied one by one, each with no more row locks than it needs.
 */
import { Cause, Effect, Exit } from "effect"
import * as Monotonic from "../../platform/Monotonic.ts"
import { isDeadlock } from "../../platform/Transaction.ts"
import * as Arrival from "../Arrival.ts"
import { causes, judge } from "../Failures.ts"
import type { Running } from "../Handle.ts"
import type { Failure } from "../SlicePlan.ts"
import { type Apply, type ApplyPart, whole } from "./Holds.ts"
import * as SliceParts from "./SliceParts.ts"

/** How long a consumer's events are applied one by one after a deadlock: as long as its backlog may cause the next one. */
const oneByOneMillis = 30_000

/** Which consumers have their events applied one by one, for a deadlock of their slices. */
const makeOneByOne = () => {
  const untilMillis = new Map<string, number>()
  return {
    isOn: (consumer: string) =>
      Effect.map(Monotonic.millis, (now) => now < (untilMillis.get(consumer) ?? Number.NEGATIVE_INFINITY)),
    begin: (consumer: string, cause: Cause.Cause<unknown>) =>
      Effect.flatMap(Monotonic.millis, (now) => {
        untilMillis.set(consumer, now + oneByOneMillis)
        return Effect.logWarning(
          `${consumer}: two slices deadlocked, and its events are applied one by one for ${oneByOneMillis / 1_000} s. ` +
            `Rows that events of several aggregates write must be written in one order (Subscriber.handleMany)`,
          cause
        ).pipe(Effect.annotateLogs({ consumer }))
      })
  }
}
type OneByOne = ReturnType<typeof makeOneByOne>

/** Whether Postgres ended the transaction to resolve a deadlock, also where a handler has wrapped the error. */
const isDeadlocked = (cause: Cause.Cause<unknown>): boolean =>
  cause.reasons.some(
    (reason) =>
      (reason._tag === "Die" && causes(reason.defect).some(isDeadlock)) ||
      (reason._tag === "Fail" && causes(reason.error).some(isDeadlock))
  )

const isTimeout = (cause: Cause.Cause<unknown>): boolean =>
  cause.reasons.some((reason) => reason._tag === "Fail" && Cause.isTimeoutError(reason.error))

/** Holds what is left of an event that can't be parked as it is: no record stops its partition. */
const applyBare = Effect.fnUntraced(function* (
  applyPart: ApplyPart,
  arrival: Arrival.Arrival,
  parking: Failure,
  failure: Failure
): Effect.fn.Return<void, unknown> {
  const error = `could not be parked as it is (${parking.error}): ${failure.error}`
  const [ofAggregate, alone] = Arrival.bare(arrival, error)
  const exit = yield* Effect.exit(applyPart(whole([ofAggregate]), { arrival: undefined }))
  if (Exit.isSuccess(exit)) return
  if (judge(exit.cause)._tag !== "Failed") return yield* Effect.failCause(exit.cause)
  return yield* applyPart(whole([alone]), { arrival: undefined })
})

/** Applies the arrivals: all at once, and in parts where that fails. It fails only where no event is to blame. */
const run = Effect.fnUntraced(function* (
  consumer: string,
  arrivals: ReadonlyArray<Arrival.Arrival>,
  applyPart: ApplyPart,
  oneByOne: OneByOne
): Effect.fn.Return<void, unknown> {
  const slice = whole(arrivals)
  /** The parts that are not applied yet, the next one last. Each is shorter than the one that failed. */
  const parts = (yield* oneByOne.isOn(consumer)) ? SliceParts.oneByOne(slice).toReversed() : [slice]
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const running: Running = { arrival: undefined }
    const exit = yield* Effect.exit(applyPart(part, running))
    if (Exit.isSuccess(exit)) continue
    const { cause } = exit
    if (part.arrivals.length > 1 && isDeadlocked(cause)) {
      yield* oneByOne.begin(consumer, cause)
      parts.push(...SliceParts.oneByOne(part).toReversed())
      continue
    }
    const verdict = judge(cause)
    if (verdict._tag !== "Failed") return yield* Effect.failCause(cause)
    const [arrival] = part.arrivals
    const failure = arrival === undefined ? undefined : part.failures.get(arrival.record)
    if (arrival !== undefined && failure !== undefined && part.arrivals.length === 1) {
      yield* applyBare(applyPart, arrival, verdict, failure)
      continue
    }
    yield* Effect.logDebug(`${consumer}: a slice failed and is applied again in parts`, cause)
    const divided = SliceParts.divide(part, running.arrival, { ...verdict, isTimeout: isTimeout(cause) })
    parts.push(...divided.toReversed())
  }
})

/** Both ways to apply slices, which share the memory of deadlocks. */
export const make = (): { readonly apply: Apply; readonly applyTogether: Apply } => {
  const oneByOne = makeOneByOne()
  return {
    apply: (consumer, arrivals, applyPart) => run(consumer, arrivals, applyPart, oneByOne),
    applyTogether: Effect.fnUntraced(function* (consumer, arrivals, applyPart) {
      if (yield* oneByOne.isOn(consumer)) {
        return yield* Effect.fail(new Error(`${consumer}: its events are applied one by one for now`))
      }
      yield* applyPart(whole(arrivals), { arrival: undefined }).pipe(
        Effect.tapCause((cause) => (isDeadlocked(cause) ? oneByOne.begin(consumer, cause) : Effect.void))
      )
    })
  }
}
