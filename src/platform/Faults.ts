/**
 * Fault points: names of places in the code where a failure hurts. At each of them the code asks this service what happens. Switched off (the
 * default) a point is `Effect.void`; FaultInjection.ts switches faults on.
 */
import { Context, Effect } from "effect"

/** The place where a fault may strike, as `part.moment`, for example `dispatcher.after-fetch`. */
export type FaultPoint = `${string}.${string}`

/** See {@link Faults}. */
export interface FaultsService {
  /** Does what is set for `point`: nothing, as a rule. `duplicate` and `lose-ack` mean nothing at a mere point. */
  readonly at: (point: FaultPoint) => Effect.Effect<void>
  /** Runs `operation` with the faults of `point` in front of it or around it; `lost` is how it fails when its answer is lost. */
  readonly around: <A, E, R>(
    point: FaultPoint,
    operation: Effect.Effect<A, E, R>,
    lost: () => E
  ) => Effect.Effect<A, E, R>
}

export const off: FaultsService = { at: () => Effect.void, around: (_, operation) => operation }

/** The faults of this process: none, unless FaultInjection.ts or a test puts some in place. */
export const Faults = Context.Reference<FaultsService>("paid-once/platform/Faults", { defaultValue: () => off })
