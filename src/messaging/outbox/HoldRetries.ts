/**
 * Sees to it that refused events are tried again when their time comes: a timer at the earliest due time of the owned lanes, woken
 * when a hold changes, here or in another process, with a poll as the net.
 */
import { Effect, type Scope, Stream } from "effect"
import { Signals } from "../../platform/Signals.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Dispatcher } from "./Dispatcher.ts"
import { Holds } from "./Holds.ts"
import type { Lane } from "./Lane.ts"

const subject = "holds"

/** Tells all dispatchers that a hold of the lane has changed from outside: an operator's redrive. A hint, as every signal. */
export const announce = (lane: Lane): Effect.Effect<void, never, Signals> =>
  Effect.flatMap(Signals, (signals) => signals.send(subject, [String(lane)]))

/** A wait that shows health now and then that it is one. */
const stampMillis = 10_000

/**
 * Watches the due times of `options.lanes` for as long as the scope lives, and hands lanes that have something due to `enqueue`, whose worker
 * then runs the returned effect before it drains the lane: retries and batches of a lane take turns in one worker.
 */
export const make = Effect.fnUntraced(function* (options: {
  readonly lanes: Effect.Effect<ReadonlyArray<Lane>>
  /** Emits when lanes come or go. */
  readonly laneChanges: Stream.Stream<unknown>
  readonly enqueue: (lane: Lane) => Effect.Effect<void>
  readonly pollMillis: number
}): Effect.fn.Return<
  (lane: Lane) => Effect.Effect<void>,
  never,
  Dispatcher | Holds | Signals | Supervised.Fibers | Scope.Scope
> {
  const dispatcher = yield* Dispatcher
  const holds = yield* Holds
  const signals = yield* Signals
  const dueLanes = new Set<Lane>()

  yield* signals.on(subject, () => Effect.asVoid(holds.changed.open))
  yield* Effect.forkScoped(Stream.runForEach(options.laneChanges, () => holds.changed.open))
  yield* Supervised.forkLoop("dispatcher holds", (stamp) =>
    Effect.gen(function* () {
      // Closed before the look: what changes during it is looked at once more.
      yield* holds.changed.close
      const lanes = yield* options.lanes
      let waitMillis = Math.min(options.pollMillis, 1 + ((yield* dispatcher.nextTryMillis) ?? Infinity))
      const next = lanes.length === 0 ? [] : yield* holds.nextDue(lanes, yield* dispatcher.pausedTopics)
      for (const lane of next) {
        if (lane.waitMillis > 0) waitMillis = Math.min(waitMillis, Math.ceil(lane.waitMillis))
        else {
          dueLanes.add(lane.lane)
          yield* options.enqueue(lane.lane)
        }
      }
      yield* holds.changed.await.pipe(Effect.timeoutOption(Math.min(waitMillis, stampMillis)), Effect.andThen(stamp))
    })
  )

  return (lane) =>
    Effect.suspend(() =>
      dueLanes.delete(lane)
        ? // Whatever goes wrong here keeps back held aggregates alone: the lane's queue goes on, and the next look tries again.
          Effect.catchCause(dispatcher.retryHeld(lane), (cause) =>
            Effect.logError(`lane ${lane}: a refused event could not be tried again`, cause)
          )
        : Effect.void
    )
})
