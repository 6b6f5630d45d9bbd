/**
 * Parking: an event that a consumer can't apply makes its own aggregate wait, for that consumer, and nothing else.
 *
 * Its parts: ApplyParts.ts finds the event to blame in a slice that failed. ParkedHolds.ts parks the event, and all that comes behind it.
 * HoldRetries.ts applies the parked events later.
 */
import type { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import { Cursors } from "../Cursors.ts"
import type { Inbox } from "../Inbox.ts"
import * as ApplyParts from "./ApplyParts.ts"
import { forkLoop, HoldRetries } from "./HoldRetries.ts"
import { Holds } from "./Holds.ts"
import { ParkedHolds } from "./ParkedHolds.ts"

/** Holds that park. */
export const layerNoDeps: Layer.Layer<Holds, never, ParkedHolds | HoldRetries> = Layer.effect(
  Holds,
  Effect.gen(function* () {
    const { hold, identify, lock, park, wake } = yield* ParkedHolds
    const retries = yield* HoldRetries
    return Holds.of({
      ...ApplyParts.make(),
      lock,
      identify,
      hold,
      park,
      wake,
      forkRetries: (subscriber) => Effect.provideService(forkLoop(subscriber), HoldRetries, retries)
    })
  })
)

/** The same with its parts. */
export const layer: Layer.Layer<Holds | HoldRetries, never, Inbox | PgClient.PgClient> = layerNoDeps.pipe(
  Layer.provideMerge(HoldRetries.layerNoDeps),
  Layer.provide([ParkedHolds.layer, Cursors.layer])
)
