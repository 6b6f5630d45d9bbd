/**
 * Holds: what becomes of an event that a consumer can't apply. Its handler fails, its record can't be read, or it comes too early: an earlier
 * version of its aggregate has not come.
 *
 * Two layers answer it. With both of them nothing is lost, applied twice or applied in the wrong order:
 *
 * - {@link Holds.layerBlocking}: nothing is parked. The slice fails, and comes again until it can be applied. Its partition waits.
 * - `Parking.layer`: the event makes its own aggregate wait, for its own consumer, and nothing else. A production service has this one.
 */
import { Cause, Context, Effect, Layer, type Scope } from "effect"
import type { Fibers } from "../../platform/Supervised.ts"
import type { Transaction } from "../../platform/Transaction.ts"
import type { Wakeups } from "../../platform/Wakeups.ts"
import { annotateLogs, type Arrival } from "../Arrival.ts"
import type { Running } from "../Handle.ts"
import type { Failures, HeldArrival, HoldState, Reason } from "../SlicePlan.ts"
import type { Subscriber } from "../Subscriber.ts"

/** The state of an event after a failure. */
export type Refused = "retrying" | "dead"

/** Records of a slice that are applied in one transaction. */
export interface Part {
  readonly arrivals: ReadonlyArray<Arrival>
  /** The records that are held without another attempt. */
  readonly failures: Failures
}

/** All records of a slice. */
export const whole = (arrivals: ReadonlyArray<Arrival>): Part => ({ arrivals, failures: new Map() })

/** Applies a part of a slice in one transaction. `running` names the event whose handler runs. */
export type ApplyPart = (part: Part, running: Running) => Effect.Effect<void, unknown>

/** Applies arrivals of a consumer by calls of `applyPart`. */
export type Apply = (
  consumer: string,
  arrivals: ReadonlyArray<Arrival>,
  applyPart: ApplyPart
) => Effect.Effect<void, unknown>

/** See {@link Holds}. */
export interface HoldsService {
  /** Applies a slice: in one transaction, or in several where that one fails. If it fails, the slice comes again. */
  readonly apply: Apply
  /** Applies slices of several partitions in one transaction, or nothing of them. */
  readonly applyTogether: Apply
  /** Locks the holds on these aggregates against their end, until the transaction is over; returns them by aggregate id. */
  readonly lock: (
    consumer: string,
    aggregateIds: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyMap<string, HoldState>, never, Transaction>
  /**
   * Gives unreadable records ids that no other record has, and tells which ids are buried: dead letters, or discarded. A topic that was
   * deleted and made again has another record at the same offset.
   */
  readonly identify: (
    consumer: string,
    arrivals: ReadonlyArray<Arrival>
  ) => Effect.Effect<
    { readonly arrivals: ReadonlyArray<Arrival>; readonly buried: ReadonlySet<string> },
    never,
    Transaction
  >
  /** Holds the aggregate from this arrival on. `parked`: another member held it first, and the arrival waits behind that hold. */
  readonly hold: (
    consumer: string,
    head: HeldArrival,
    reason: Reason
  ) => Effect.Effect<Refused | "gap" | "parked", never, Transaction>
  /** Parks arrivals of held aggregates, once each. Returns how many are new. */
  readonly park: (consumer: string, arrivals: ReadonlyArray<HeldArrival>) => Effect.Effect<number, never, Transaction>
  /** Makes the gaps of these aggregates due: the missing events have come. */
  readonly wake: (consumer: string, aggregateIds: ReadonlyArray<string>) => Effect.Effect<void, never, Transaction>
  /** Tries the consumer's held events again, in a fiber of the scope. */
  readonly forkRetries: (subscriber: Subscriber) => Effect.Effect<void, never, Wakeups | Fibers | Scope.Scope>
}

/** The error of an event that came too early, for an operator. */
export const gapText = (missing: number): string => `version ${missing} of its aggregate has not come`

/** All in one transaction. */
const atOnce: Apply = (_, arrivals, applyPart) => applyPart(whole(arrivals), { arrival: undefined })

/** All in one transaction. If that fails, one arrival after the other, up to the first that fails alone: those before it don't wait. */
const upToFailure: Apply = (consumer, arrivals, applyPart) =>
  Effect.catchCause(atOnce(consumer, arrivals, applyPart), (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
    if (arrivals.length > 1) {
      return Effect.forEach(arrivals, (one) => upToFailure(consumer, [one], applyPart), { discard: true })
    }
    // The cause is logged with the slice (SliceProgress.ts).
    const warning = Effect.logWarning(`${consumer}: an event stops its partition until it can be applied`)
    const named = Effect.forEach(arrivals, (one) => annotateLogs(consumer, one, 1)(warning), { discard: true })
    return Effect.andThen(named, Effect.failCause(cause))
  })

/** Fails the transaction, and with it the slice. */
const stop = ({ aggregateId, eventId }: Arrival, reason: string) =>
  Effect.die(new Error(`event ${eventId} of ${aggregateId} stops its partition: ${reason}`))

export class Holds extends Context.Service<Holds, HoldsService>()("paid-once/inbox/holds/Holds") {
  /** Parks nothing. An event that can't be applied fails its slice, and the broker hands the slice over again. */
  static readonly layerBlocking: Layer.Layer<Holds> = Layer.succeed(Holds, {
    apply: upToFailure,
    applyTogether: atOnce,
    // An earlier consumer of this name may have parked. Its parked events come first.
    lock: (consumer, aggregateIds) =>
      Effect.die(
        new Error(`${consumer} holds ${aggregateIds.join(", ")}: only a consumer with parking ends its holds`)
      ),
    identify: (_, arrivals) => Effect.succeed({ arrivals, buried: new Set() }),
    hold: (_, { arrival }, reason) => stop(arrival, reason._tag === "Gap" ? gapText(reason.missing) : reason.error),
    park: (_, [behind]) =>
      behind === undefined ? Effect.succeed(0) : stop(behind.arrival, "an earlier event of its aggregate does"),
    wake: () => Effect.void,
    forkRetries: () => Effect.void
  })
}
