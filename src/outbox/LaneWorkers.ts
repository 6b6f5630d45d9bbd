/**
 * Keeps a process's lanes drained: hands the lanes that it owns to the pipeline when they may have something to send.
 *
 * A wake-up tells of a lane right after a commit. The poll is the net under lost wake-ups, and looks at lanes again that had to wait.
 */
import { Context, Effect, Layer, Stream } from "effect"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Supervised from "../platform/Supervised.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import { Dispatcher } from "./Dispatcher.ts"
import * as Flights from "./Flights.ts"
import * as HoldRetries from "./holds/HoldRetries.ts"
import { Holds } from "./holds/Holds.ts"
import { allLanes, type Lane } from "./Lane.ts"
import { LaneOwnership } from "./LaneOwnership.ts"
import { LaneWakeup } from "./LaneWakeup.ts"
import { Looks } from "./Looks.ts"
import * as Pipeline from "./Pipeline.ts"
import { Queue } from "./Queue.ts"
import * as StoppedLanes from "./StoppedLanes.ts"

export const LaneWorkersSettings = Context.Reference<{
  /** How often all owned lanes are looked at. */
  readonly pollMillis: number
}>("paid-once/outbox/LaneWorkersSettings", { defaultValue: () => ({ pollMillis: 1_000 }) })

/** How often a stage or poll without work shows health that it is alive. */
const stampMillis = 5_000

export class LaneWorkers extends Context.Service<
  LaneWorkers,
  {
    /** The lanes that this process owns now. */
    readonly lanes: Effect.Effect<ReadonlyArray<Lane>>
    /** Lanes that wait, after a round that ended in a defect or an attempt of a held event that did, for health. */
    readonly stopped: Effect.Effect<ReadonlyArray<StoppedLanes.StoppedLane>>
  }
>()("paid-once/outbox/LaneWorkers") {
  /** Works in supervised fibers of the layer's scope. Closing it ends the sends in flight; the lanes are given up behind it. */
  static readonly layer: Layer.Layer<
    LaneWorkers,
    never,
    Dispatcher | Holds | Queue | LaneOwnership | LaneWakeup | Looks | Wakeups | Supervised.Fibers
  > = Layer.effect(
    LaneWorkers,
    Effect.gen(function* () {
      const dispatcher = yield* Dispatcher
      const ownership = yield* LaneOwnership
      const queue = yield* Queue
      const wakeup = yield* LaneWakeup
      const looks = yield* Looks
      const faults = yield* Faults
      const { pollMillis } = yield* LaneWorkersSettings

      const stopped = yield* StoppedLanes.make({ owns: ownership.holds, wakeAfter: looks.after })
      const retries = yield* HoldRetries.make({
        lanes: ownership.held,
        laneChanges: ownership.changes,
        wake: (lane) => pipeline.wakeHeld(lane),
        pollMillis
      })
      const flights = yield* Flights.make({
        owns: ownership.holds,
        enter: ownership.enter,
        leave: (lane) => {
          dispatcher.leave([lane])
          ownership.leave(lane)
        },
        stopped
      })
      const pipeline: Pipeline.Pipeline = yield* Pipeline.make({ flights, stopped, heldFailed: retries.failed })

      yield* wakeup.onWake(
        (lane) => Effect.sync(() => (ownership.holds(lane) ? flights.wake(lane) : undefined)),
        (lane) => Effect.sync(() => ownership.holds(lane))
      )
      // A wake-up for a lane may have gone to its last owner: a lane that comes to this process is looked at at once.
      yield* Effect.forkScoped(
        Stream.runForEach(ownership.changes, (held) =>
          Effect.suspend(() => {
            for (const lane of allLanes) if (!held.includes(lane)) pipeline.forget(lane)
            return looks.now
          })
        )
      )

      let known: ReadonlyArray<Lane> = []
      /** One that fails is due again when the poll has waited. */
      const look = Effect.gen(function* () {
        const lanes = yield* ownership.held
        const before = known
        known = lanes
        if (lanes.some((lane) => !before.includes(lane))) yield* faults.at("dispatcher.after-acquire")
        const now = yield* Monotonic.millis
        // A stopped lane is well when a round has said so, even if nothing is left in it.
        const failed = stopped.list().filter(({ lane }) => !stopped.isWaiting(lane, now))
        const ready = lanes.length === 0 ? [] : yield* queue.ready(lanes.map((lane) => ({ lane })))
        for (const lane of new Set([...ready, ...failed.map(({ lane }) => lane)])) flights.wake(lane)
      })
      yield* Supervised.forkLoop("dispatcher poll", (stamp) =>
        Effect.gen(function* () {
          yield* Effect.raceFirst(
            looks.next(pollMillis),
            // A long poll is no fiber that hangs, nor is a stage without work.
            Effect.forever(Effect.andThen(Effect.sleep(stampMillis), Effect.andThen(stamp, pipeline.stamp)))
          )
          yield* look.pipe(Effect.onError(() => looks.now))
        })
      )

      return LaneWorkers.of({
        lanes: ownership.held,
        stopped: Effect.sync(() => {
          const all = [...stopped.list(), ...[...retries.failing()].map(([lane, { attempt }]) => ({ lane, attempt }))]
          return [...new Map(all.toReversed().map((one) => [one.lane, one])).values()]
        })
      })
    })
  )
}
