/**
 * Sends no wake-ups of lanes that their dispatcher watches (LaneWatch.ts). A NOTIFY makes work for its sender, for Postgres and for the dispatcher.
 *
 * While it has wake-ups to send, a process reads now and then which of these lanes are watched. Without this layer it sends all of them.
 */
import { Clock, Effect, Latch, Layer } from "effect"
import type { Lane } from "../../outbox/Lane.ts"
import { LaneWakeup } from "../../outbox/LaneWakeup.ts"
import { ControlConnection } from "../../platform/ControlConnection.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { type Wakeups, WakeupSettings } from "../../platform/Wakeups.ts"
import * as WatchedLanes from "./WatchedLanes.ts"

/** Between two readings while a lane is watched. Shorter than `quietMillis`, so a watched lane stays quiet from one reading to the next. */
const readMillis = 200

/** Between two readings while none is: most processes write too seldom for a watch, and would read as often as they write. */
const unwatchedMillis = 1_000

/** A loop that has nothing to do shows health this often that it is alive. */
const idleMillis = 5_000

/** A lane's wake-up that is not sent while another process watches the lane. */
export const layer: Layer.Layer<LaneWakeup, never, Wakeups | ControlConnection | Supervised.Fibers> = Layer.effect(
  LaneWakeup,
  Effect.gen(function* () {
    const wakeup = yield* LaneWakeup
    const control = yield* ControlConnection
    const clock = yield* Clock.Clock
    if (!(yield* WakeupSettings).crossProcess) return wakeup
    const owners = new Set<(lane: Lane) => boolean>()
    /** The lanes that are watched, and until when their wake-ups are not sent. */
    let quiet: ReadonlyMap<Lane, number> = new Map()
    /** The lanes that were woken since the last reading. */
    const woken = new Set<Lane>()
    const hasWoken = yield* Latch.make(false)

    const read = Effect.gen(function* () {
      const until = Monotonic.millisUnsafe(clock) + WatchedLanes.quietMillis
      const lanes = [...new Set([...woken, ...quiet.keys()])]
      woken.clear()
      hasWoken.closeUnsafe()
      // A reading that fails makes nothing quiet.
      const watched = yield* Effect.orElseSucceed(WatchedLanes.read(control, lanes), (): ReadonlyArray<Lane> => [])
      quiet = new Map(watched.map((lane) => [lane, until]))
      yield* Effect.sleep(watched.length > 0 ? readMillis : unwatchedMillis)
    })
    yield* Supervised.forkLoop(
      "watched lanes",
      Effect.flatMap(Effect.timeoutOption(hasWoken.await, idleMillis), () => (hasWoken.isOpen() ? read : Effect.void))
    )

    return LaneWakeup.of({
      wake: (lane) =>
        Effect.suspend(() => {
          for (const owns of owners) if (owns(lane)) return wakeup.wake(lane)
          woken.add(lane)
          hasWoken.openUnsafe()
          return Monotonic.millisUnsafe(clock) < (quiet.get(lane) ?? 0) ? Effect.void : wakeup.wake(lane)
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
