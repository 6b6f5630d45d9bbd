/** A turn at breaking and mending: the database as its owner, with the lock of drills, and whole. Ends with the scope. */
import { Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { AppConfig } from "../../Config.ts"
import { foundOwner, settingsOf } from "../../main/Storage.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import * as Database from "../../postgres/Database.ts"
import * as Leftovers from "./Leftovers.ts"
import type { Teller } from "./Teller.ts"

/** This service is not to be broken, or is not there. Nothing was done. */
export class DrillRefused extends Schema.TaggedError<DrillRefused>()("DrillRefused", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** The connection with the lock says nothing for as long as the drill takes. */
const longestDrillMillis = 3_600_000

/** Postgres sees within milliseconds that a killed drill's connection has ended. A busy machine takes longer. */
const lockTries = Schedule.max([Schedule.spaced("200 millis"), Schedule.recurs(25)])

const isHeld = Rows.one(Schema.Struct({ held: Schema.Boolean }))

/** Takes the turn, and mends what a killed drill has left. Nothing is asked of the service, which may be down. */
export const take = Effect.fnUntraced(function* (options: {
  readonly config: AppConfig
  readonly operator: Operator
  readonly teller: Teller
}) {
  const { config, operator, teller } = options
  const owner = yield* Layer.build(
    // The command has a pool of the service's role already.
    Layer.fresh(Database.layer).pipe(
      Layer.provide(settingsOf(yield* foundOwner(config), { maxConnections: 3 })),
      Layer.provide(Layer.succeed(Database.PoolSettings, { silenceMillis: longestDrillMillis }))
    )
  )
  const run = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provideContext(effect, owner)
  const connection = yield* run(Effect.flatMap(SqlClient.SqlClient, (sql) => sql.reserve))
  yield* isHeld(
    connection.executeUnprepared(`SELECT pg_try_advisory_lock(${Leftovers.lockKey}) AS held`, [], undefined)
  ).pipe(
    Effect.filterOrFail(
      ({ held }) => held,
      () => new DrillRefused({ reason: "another drill is running on this database: one at a time" })
    ),
    Effect.retry(lockTries)
  )
  const leftovers = yield* run(Leftovers.mend(operator, teller))
  return { run, ...leftovers }
})
