/**
 * Wake-ups of a process that ends soon, as a command does: `send` returns when its wake-ups have left on a connection of the pool, and `on` hears none. A
 * wake-up that can't be sent is dropped.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import { channel } from "./ControlConnection.ts"
import { Wakeups, WakeupSettings } from "./Wakeups.ts"

export const layer: Layer.Layer<Wakeups, never, PgClient.PgClient> = Layer.effect(
  Wakeups,
  Effect.gen(function* () {
    const client = yield* PgClient.PgClient
    const { crossProcess } = yield* WakeupSettings
    return Wakeups.of({
      send: (subject, details) =>
        crossProcess
          ? Effect.forEach(details, (detail) => client.notify(channel, `${subject} ${detail}`), { discard: true }).pipe(
              Effect.ignore
            )
          : Effect.void,
      on: () => Effect.void
    })
  })
)
