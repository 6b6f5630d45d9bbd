/**
 * Tells the dispatchers that a lane has something to do. A hint: the row is the promise, and the poll finds it anyway.
 */
import { Context, Effect, Layer, Schema, type Scope } from "effect"
import { Signals } from "../../platform/Signals.ts"
import { Lane } from "./Lane.ts"

const subject = "outbox"
const isLane = Schema.is(Lane)

export class Wakeup extends Context.Service<
  Wakeup,
  {
    readonly wake: (lanes: ReadonlyArray<Lane>) => Effect.Effect<void>
    /** Calls `handle` with each lane that was woken, here or by another process, while the scope is open. */
    readonly onWake: (handle: (lane: Lane) => Effect.Effect<void>) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/messaging/outbox/Wakeup") {
  static readonly layer: Layer.Layer<Wakeup, never, Signals> = Layer.effect(
    Wakeup,
    Effect.map(Signals, (signals) =>
      Wakeup.of({
        wake: (lanes) => signals.send(subject, lanes.map(String)),
        onWake: (handle) =>
          signals.on(subject, (detail) => {
            const lane = Number(detail)
            // Anyone may NOTIFY on the channel: what is no lane is no business of ours.
            return isLane(lane) ? handle(lane) : Effect.void
          })
      })
    )
  )
}
