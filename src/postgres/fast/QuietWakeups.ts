/**
 * Sends no wake-ups of lanes that their dispatcher watches. A NOTIFY makes work for its sender, for Postgres and for the dispatcher: together as
 * much as a twelfth of an event at 500 a second (docs/performance-log.md).
 *
 * While it has wake-ups to send, a process reads five times a second which lanes are watched. Without this layer it sends all of them.
 */
import { Clock, Effect, Latch, Layer } from "effect"
import { allLanes, type Lane } from "../../outbox/Lane.ts"
import { LaneWakeup } from "../../outbox/LaneWakeup.ts"
import { ControlConnection } from "../../platform/ControlConnection.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Wakeups, WakeupSettings } from "../../platform/Wakeups.ts"
import * as WatchedLanes from "./WatchedLanes.ts"

/** Below the time for which an answer counts, so that the next one comes before its end. */
const readMillis = 200

/** A loop that has nothing to do shows health this often that it is alive. */
const idleMillis = 5_000

/** A lane's wake-up that is quiet while another process watches the lane. */
export const layer: Layer.Layer<LaneWakeup, never, Wakeups | ControlConnection | Supervised.Fibers> = Layer.effect(
  LaneWakeup,
  Effect.gen(function* () {
    const wakeup = yield* LaneWakeup
    const control = yield* ControlConnection
    const clock = yield* Clock.Clock
    if (!(yield* WakeupSettings).crossProcess) return wakeup
    const owners = new Set<(lane: Lane) => boolean>()
    /** Until when each lane's wake-ups are not sent. */
    const quietUntil = new Map<Lane, number>(allLanes.map((lane) => [lane, 0]))
    const hasWoken = yield* Latch.make(false)

    const read = Effect.gen(function* () {
      hasWoken.closeUnsafe()
      const now = Monotonic.millisUnsafe(clock)
      // Without an answer everything is sent again, as soon as the last answer counts no more.
      const watched = yield* Effect.orElseSucceed(WatchedLanes.read(control), (): ReadonlyArray<Lane> => [])
      for (const lane of allLanes) quietUntil.set(lane, watched.includes(lane) ? now + WatchedLanes.quietMillis : 0)
      yield* Effect.sleep(readMillis)
    })
    yield* Supervised.forkLoop(
      "watched lanes",
      Effect.flatMap(Effect.timeoutOption(hasWoken.await, idleMillis), () => (hasWoken.isOpen() ? read : Effect.void))
    )

    return LaneWakeup.of({
      wake: (lane) =>
        Effect.suspend(() => {
          for (const owns of owners) if (owns(lane)) return wakeup.wake(lane)
          hasWoken.openUnsafe()
          return Monotonic.millisUnsafe(clock) < quietUntil.get(lane)! ? Effect.void : wakeup.wake(lane)
        }),
      onWake: (handle, owns) =>
        Effect.andThen(
          owns === undefined
            ? Effect.void
            : Effect.acquireRelease(
                Effect.sync(() => owners.add(owns)),
                () => Effect.sync(() => owners.delete(owns))
              ),
          wakeup.onWake(handle, owns)
        )
    })
  })
).pipe(Layer.provide(LaneWakeup.layer))
