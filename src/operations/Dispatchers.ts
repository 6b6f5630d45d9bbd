/** The processes that publish, and how many lanes each of them owns: the locks as they are, without a look at the queue. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { laneCount } from "../outbox/Lane.ts"
import { LaneOwnership } from "../outbox/LaneOwnership.ts"
import * as SlotOwners from "../platform/SlotOwners.ts"

/** Who owns the lanes. The lanes of all processes and those without an owner are all lanes. */
export const LaneOwners = Schema.Struct({
  processes: Schema.Array(Schema.Struct({ process: Schema.String, lanes: Schema.Int })),
  /** Nobody publishes what is in them: for a moment, while they move. */
  withoutOwner: Schema.Int
})
export type LaneOwners = typeof LaneOwners.Type

export class Dispatchers extends Context.Service<Dispatchers, { readonly lanes: Effect.Effect<LaneOwners> }>()(
  "paid-once/operations/Dispatchers"
) {
  static readonly layer: Layer.Layer<Dispatchers, never, SqlClient.SqlClient> = Layer.effect(
    Dispatchers,
    Effect.map(SqlClient.SqlClient, (sql) =>
      Dispatchers.of({
        lanes: Effect.map(
          Effect.orDie(Effect.provideService(SlotOwners.of(LaneOwnership.group), SqlClient.SqlClient, sql)),
          (owners) => {
            const counts = new Map<string, number>()
            for (const process of owners.values()) counts.set(process, (counts.get(process) ?? 0) + 1)
            return {
              processes: [...counts].map(([process, lanes]) => ({ process, lanes })),
              withoutOwner: laneCount - owners.size
            }
          }
        )
      })
    )
  )
}
