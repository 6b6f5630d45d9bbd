/**
 * Sees to it that refused events are tried again when their time comes: a timer at the earliest due time of the owned lanes, woken
 * when a hold changes, here or in another process, with a poll as the net.
 */
import { type Cause, Effect, type Scope, Stream } from "effect"
import * as Backoff from "../../platform/Backoff.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Wakeups } from "../../platform/Wakeups.ts"
import { Dispatcher } from "../Dispatcher.ts"
import type { Lane } from "../Lane.ts"
import { Holds } from "./Holds.ts"

const subject = "holds"

/** Tells all dispatchers that a hold of the lane has changed from outside: an operator's redrive. A hint, as every signal. */
export const announce = (lane: Lane): Effect.Effect<void, never, Wakeups> =>
  Effect.flatMap(Wakeups, (wakeups) => wakeups.send(subject, [String(lane)]))

/** A wait that shows health now and then that it is one. */
const stampMillis = 10_000

/**
 * Watches the due times of `options.lanes` for as long as the scope lives, and hands lanes that have something due to `enqueue`, whose worker
 * then runs `run` before it drains the lane: retries and batches of a lane take turns in one worker.
 */
export const make = Effect.fnUntraced(function* (options: {
  readonly lanes: Effect.Effect<ReadonlyArray<Lane>>
  /** Emits when lanes come or go. */
  readonly laneChanges: Stream.Stream<unknown>
  readonly enqueue: (lane: Lane) => Effect.Effect<void>
  readonly pollMillis: number
}): Effect.fn.Return<
  {
    readonly run: (lane: Lane) => Effect.Effect<void>
    /** Whether the lane was handed to `enqueue`, and `run` has not come to it since. */
    readonly isDue: (lane: Lane) => boolean
    /** Lanes whose last tries ended in a defect, with how many did in a row. */
    readonly failing: () => ReadonlyMap<Lane, { readonly attempt: number }>
  },
  never,
  Dispatcher | Holds | Wakeups | Supervised.Fibers | Scope.Scope
> {
  const dispatcher = yield* Dispatcher
  const holds = yield* Holds
  const wakeups = yield* Wakeups
  const dueLanes = new Set<Lane>()
  const failing = new Map<Lane, { readonly attempt: number; readonly untilMillis: number }>()

  yield* wakeups.on(subject, () => Effect.asVoid(holds.changed.open))
  yield* Effect.forkScoped(Stream.runForEach(options.laneChanges, () => holds.changed.open))
  yield* Supervised.forkLoop("dispatcher holds", (stamp) =>
    Effect.gen(function* () {
      // Closed before the look: what changes during it is looked at once more.
      yield* holds.changed.close
      const lanes = yield* options.lanes
      for (const lane of failing.keys()) if (!lanes.includes(lane)) failing.delete(lane)
      let waitMillis = Math.min(options.pollMillis, 1 + ((yield* dispatcher.nextTryMillis) ?? Infinity))
      const failingBefore = new Map(failing)
      const next = lanes.length === 0 ? [] : yield* holds.nextDue(lanes, yield* dispatcher.pausedTopics(lanes))
      const now = yield* Monotonic.millis
      for (const { lane, waitMillis: dueMillis } of next) {
        const millis = Math.max(dueMillis, (failing.get(lane)?.untilMillis ?? 0) - now)
        if (millis > 0) waitMillis = Math.min(waitMillis, Math.ceil(millis))
        else {
          dueLanes.add(lane)
          yield* options.enqueue(lane)
        }
      }
      // A head whose outcome could not be written is due as before, its topic paused or not. Where none is, somebody else has dealt with it.
      const asked = failingBefore.size === 0 ? [] : yield* holds.nextDue([...failingBefore.keys()], [])
      for (const [lane, before] of failingBefore) {
        const isDue = asked.some((one) => one.lane === lane && one.waitMillis <= 0)
        if (!isDue && failing.get(lane) === before) failing.delete(lane)
      }
      yield* holds.changed.await.pipe(Effect.timeoutOption(Math.min(waitMillis, stampMillis)), Effect.andThen(stamp))
    })
  )

  /** Whatever goes wrong here keeps back held aggregates alone: the lane's queue goes on. */
  const failed = Effect.fnUntraced(function* (lane: Lane, cause: Cause.Cause<never>) {
    const attempt = (failing.get(lane)?.attempt ?? 0) + 1
    const millis = yield* Backoff.millisAfter(Backoff.lane, attempt)
    failing.set(lane, { attempt, untilMillis: (yield* Monotonic.millis) + millis })
    // A look that came during this try knew nothing of its failure.
    dueLanes.delete(lane)
    yield* holds.changed.open
    yield* Effect.logError(
      `lane ${lane}: a refused event could not be tried again; next try in ${Math.round(millis)} ms`,
      cause
    )
  })

  return {
    run: (lane) =>
      Effect.suspend(() =>
        dueLanes.delete(lane)
          ? dispatcher.retryHeld(lane).pipe(
              // As long as one is due it may be the one that can't be written down.
              Effect.tap((isWell) => Effect.sync(() => isWell && failing.delete(lane))),
              Effect.catchCause((cause) => failed(lane, cause))
            )
          : Effect.void
      ),
    isDue: (lane) => dueLanes.has(lane),
    failing: () => failing
  }
})
