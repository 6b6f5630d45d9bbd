/** The lanes that this process owns: a fair part of them, each owned by one process at a time (platform/Ownership.ts). */
import { Context, Effect, Layer } from "effect"
import { type Membership, Ownership } from "../platform/Ownership.ts"
import { type Lane, laneCount } from "./Lane.ts"

export class LaneOwnership extends Context.Service<
  LaneOwnership,
  Omit<Membership, "held"> & { readonly held: Effect.Effect<ReadonlyArray<Lane>> }
>()("paid-once/outbox/LaneOwnership") {
  /** The group whose slots are the lanes: a slot's number is its lane's number. */
  static readonly group = "dispatcher"
  /** Takes part until the scope closes; then waits for the users of its lanes, and gives them up. */
  static readonly layer: Layer.Layer<LaneOwnership, never, Ownership> = Layer.effect(
    LaneOwnership,
    Effect.gen(function* () {
      const ownership = yield* Ownership
      const membership = yield* ownership.join(LaneOwnership.group, laneCount)
      return LaneOwnership.of({ ...membership, held: membership.held as Effect.Effect<ReadonlyArray<Lane>> })
    })
  )
}
