/** Wakes the dispatchers of a lane after a commit. A hint: the row is the promise, and the poll finds it anyway. */
import { Context, Effect, Layer, Schema, type Scope } from "effect"
import { Wakeups } from "../platform/Wakeups.ts"
import { Lane } from "./Lane.ts"

const subject = "outbox"
const isLane = Schema.is(Lane)

export class LaneWakeup extends Context.Service<
  LaneWakeup,
  {
    /** Wakes the lane's owner: in this process, or else in the others. */
    readonly wake: (lane: Lane) => Effect.Effect<void>
    /**
     * Calls `handle` with the lanes that were woken, here or by another process, while the scope is open. If `owns` says that this process
     * owns the lane, no other process is woken, and `isHere` is true: a process that dispatches its own events sends no NOTIFY.
     */
    readonly onWake: (
      handle: (lanes: ReadonlyArray<Lane>, isHere: boolean) => void,
      owns?: (lane: Lane) => boolean
    ) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/outbox/LaneWakeup") {
  static readonly layer: Layer.Layer<LaneWakeup, never, Wakeups> = Layer.effect(
    LaneWakeup,
    Effect.map(Wakeups, (wakeups) => {
      const owners = new Set<{
        readonly handle: (lanes: ReadonlyArray<Lane>, isHere: boolean) => void
        readonly owns: (lane: Lane) => boolean
      }>()

      return LaneWakeup.of({
        wake: (lane) =>
          Effect.suspend(() => {
            for (const { handle, owns } of owners) {
              if (owns(lane)) return Effect.sync(() => handle([lane], true))
            }
            return wakeups.send(subject, [String(lane)])
          }),
        onWake: Effect.fnUntraced(function* (handle, owns) {
          if (owns !== undefined) {
            const owner = { handle, owns }
            yield* Effect.acquireRelease(
              Effect.sync(() => owners.add(owner)),
              () => Effect.sync(() => owners.delete(owner))
            )
          }
          yield* wakeups.on(subject, (detail) => {
            const lane = Number(detail)
            // Anyone may NOTIFY on the channel.
            if (isLane(lane)) handle([lane], false)
          })
        })
      })
    })
  )
}
