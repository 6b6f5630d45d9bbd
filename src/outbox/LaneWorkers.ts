/**
 * Keeps a process's lanes drained: gives the lanes that it owns to the pipeline when they may have events.
 *
 * A wake-up names a lane right after a commit. The poll finds lanes whose wake-up was lost, and lanes that had to wait.
 */
import { Context, Effect, Layer, Stream } from "effect"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Supervised from "../platform/Supervised.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import { Dispatcher } from "./Dispatcher.ts"
import * as Flights from "./Flights.ts"
import { Holds } from "./holds/Holds.ts"
import { allLanes, type Lane } from "./Lane.ts"
import { LaneOwnership } from "./LaneOwnership.ts"
import { LaneWakeup } from "./LaneWakeup.ts"
import { PollRequests } from "./PollRequests.ts"
import * as Pipeline from "./Pipeline.ts"
import { Queue } from "./Queue.ts"
import * as StoppedLanes from "./StoppedLanes.ts"

export const LaneWorkersSettings = Context.Reference<{
  /** The interval at which all owned lanes are polled. */
  readonly pollMillis: number
}>("paid-once/outbox/LaneWorkersSettings", { defaultValue: () => ({ pollMillis: 1_000 }) })

/** Turns and poll without work show health that they are alive at this interval, or at that of the polls if it is shorter. */
const stampMillis = 5_000

export class LaneWorkers extends Context.Service<
  LaneWorkers,
  {
    /** The lanes that this process owns now. */
    readonly lanes: Effect.Effect<ReadonlyArray<Lane>>
    /** Lanes that wait because their last round, or an attempt of a held event, ended in a defect. For health. */
    readonly stopped: Effect.Effect<ReadonlyArray<StoppedLanes.StoppedLane>>
  }
>()("paid-once/outbox/LaneWorkers") {
  /** Works in supervised fibers of the layer's scope. Closing the scope ends the sends in flight, and then gives up the lanes. */
  static readonly layer: Layer.Layer<
    LaneWorkers,
    never,
    Dispatcher | Holds | Queue | LaneOwnership | LaneWakeup | PollRequests | Wakeups | Supervised.Fibers
  > = Layer.effect(
    LaneWorkers,
    Effect.gen(function* () {
      const dispatcher = yield* Dispatcher
      const ownership = yield* LaneOwnership
      const queue = yield* Queue
      const wakeup = yield* LaneWakeup
      const pollRequests = yield* PollRequests
      const faults = yield* Faults
      const { pollMillis } = yield* LaneWorkersSettings
      const stopped = yield* StoppedLanes.make({ owns: ownership.holds, wakeAfter: pollRequests.after })
      const holds = yield* Holds
      const retries = yield* holds.watch({
        lanes: ownership.held,
        laneChanges: ownership.changes,
        wake: (lane) => pipeline.wakeHeld(lane),
        pollMillis
      })
      const flights = yield* Flights.make({
        owns: ownership.holds,
        enter: ownership.enter,
        leave: (lane) => {
          dispatcher.leave(lane)
          ownership.leave(lane)
        },
        stopped
      })
      const pipeline: Pipeline.Pipeline = yield* Pipeline.make({ flights, stopped, heldFailed: retries.failed })

      yield* wakeup.onWake((lanes) => flights.wake(lanes.filter(ownership.holds)), ownership.holds)
      // A wake-up may have gone to the lane's last owner, so a newly owned lane is checked at once.
      yield* Effect.forkScoped(
        Stream.runForEach(ownership.changes, (held) =>
          Effect.suspend(() => {
            for (const lane of allLanes) if (!held.includes(lane)) pipeline.forget(lane)
            return pollRequests.now
          })
        )
      )

      let known: ReadonlyArray<Lane> = []
      /** Finds the lanes that have events. If a poll fails, the next one comes after the restart's backoff and not after a whole poll. */
      const poll = Effect.gen(function* () {
        const lanes = yield* ownership.held
        const before = known
        known = lanes
        if (lanes.some((lane) => !before.includes(lane))) yield* faults.at("dispatcher.after-acquire")
        const now = yield* Monotonic.millis
        // A stopped lane counts as healthy only after another round, so it gets one even if it has no events.
        const failed = stopped.list().filter(({ lane }) => !stopped.isWaiting(lane, now))
        const ready = lanes.length === 0 ? [] : yield* queue.ready(lanes.map((lane) => ({ lane })))
        flights.wake([...ready, ...failed.map(({ lane }) => lane)])
      })
      yield* Supervised.forkLoop(
        "dispatcher poll",
        (stamp) =>
          Effect.gen(function* () {
            yield* Effect.raceFirst(
              pollRequests.next(pollMillis),
              // Neither a long poll nor a turn without work is a fiber that hangs.
              Effect.forever(Effect.andThen(Effect.sleep(stampMillis), Effect.andThen(stamp, pipeline.stamp)))
            )
            yield* pipeline.stamp
            yield* poll.pipe(Effect.onError(() => pollRequests.now))
          }),
        { restartCapMillis: Pipeline.longestWaitMillis }
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
