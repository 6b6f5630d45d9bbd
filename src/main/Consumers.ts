/** How the service runs its consumers: the inbox's steps with its fast layers, on connections of their own. */
import { Effect, Layer } from "effect"
import { ApplySlice } from "../inbox/ApplySlice.ts"
import { HandleSettings } from "../inbox/Handle.ts"
import * as Parking from "../inbox/holds/Parking.ts"
import * as InboxMetrics from "../operations/InboxMetrics.ts"
import { InboxReport } from "../operations/reports/InboxReport.ts"
import * as ReservedPool from "../postgres/ReservedPool.ts"
import * as CoalescedSlices from "../postgres/fast/CoalescedSlices.ts"
import * as OneStatementClaim from "../postgres/fast/OneStatementClaim.ts"

/**
 * Connections that a process's consumers have for themselves: a slice does not queue for one behind the requests. As many as a topic has
 * partitions by default; more slices at once only queue in Postgres.
 */
export const connections = 8

/**
 * How Postgres plans on those connections, for handlers too. A slice's statements take arrays, and to plan them anew each time costs more
 * than to run them. And a plan that was made while a table was small must not read all of it once it is large.
 */
export const plans: Readonly<Record<string, string>> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off"
}

/** A transaction that is silent for so much longer than handlers may take has lost its process, not its handler. */
const silenceSlackMillis = 5_000

/**
 * The consumers' own connections. A process that freezes in the middle of a slice keeps its row locks only until its handlers would have
 * ended: other members wait for these rows.
 */
export const database = Layer.unwrap(
  Effect.gen(function* () {
    const { timeoutMillis } = yield* HandleSettings
    const bounds = yield* ReservedPool.lockBounds(timeoutMillis + silenceSlackMillis)
    return ReservedPool.layer("consumers", connections, { ...plans, ...bounds })
  })
)

const applySlice = ApplySlice.layer.pipe(
  // Without this line a slice's marks and cursors take three statements more.
  Layer.provide(OneStatementClaim.layer)
)

/** The services that consumers need, each over its fast layers. */
export const steps = Layer.mergeAll(
  // Without it, and {@link InboxMetrics.layer}, nobody sees how old the oldest event is.
  InboxMetrics.layerUnderWay.pipe(
    // Without this line each slice has a transaction of its own, however small it is.
    Layer.provide(CoalescedSlices.layer({ sideBySide: connections })),
    Layer.provide(applySlice)
  ),
  InboxReport.layer
).pipe(
  // With `Holds.layerBlocking` in its place, an event that can't be applied stops its partition.
  Layer.provideMerge(Parking.layer)
)
