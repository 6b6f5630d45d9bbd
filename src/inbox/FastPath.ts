/**
 * A quicker way through a slice in which nothing is unusual. The inbox is correct without one, and has none by default;
 * `postgres/fast/OneStatementClaim.ts` provides one.
 */
import { Context, Effect } from "effect"
import type { Transaction } from "../platform/Transaction.ts"
import type { Arrival, ReadableArrival } from "./Arrival.ts"

/** A slice that was marked, and whose cursors were moved. Its handlers have still to run. */
export interface Marked {
  /** The slice's events, in its order. */
  readonly events: ReadonlyArray<ReadableArrival>
  /** The ids of the events that had no mark before. */
  readonly first: ReadonlySet<string>
}

/**
 * Marks the arrivals' events as applied and moves the consumer's cursors behind them, in the surrounding transaction. This is allowed
 * where every record is an event, no aggregate of theirs is held, and each aggregate has its next versions here.
 *
 * Returns undefined for any other slice, and has written nothing then: ApplySlice.ts goes on step by step.
 */
export const FastPath = Context.Reference<
  (consumer: string, arrivals: ReadonlyArray<Arrival>) => Effect.Effect<Marked | undefined, never, Transaction>
>("paid-once/inbox/FastPath", { defaultValue: () => () => Effect.undefined })
