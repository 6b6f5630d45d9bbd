/** Ids of orders and payments: UUIDs version 7 with the database's time, so that they sort in the order in which they were drawn. */
import { Effect, Schema } from "effect"
import type { Statement } from "effect/sql"
import { RandomUuid } from "../platform/RandomUuid.ts"
import * as Rows from "../platform/Rows.ts"

const one = Rows.one(Schema.Struct({ id: Schema.String }))

/** How a service draws them. `sql` may be a transaction's or a pool's: nothing is written. */
export const makeDrawId: Effect.Effect<(sql: Statement.Constructor) => Effect.Effect<string>> = Effect.map(
  RandomUuid,
  (drawUuid) => (sql) =>
    Effect.map(Effect.orDie(one(sql`SELECT uuid_v7(clock_now(), ${drawUuid()}::uuid) AS id`)), ({ id }) => id)
)
