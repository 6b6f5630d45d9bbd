/** The gateway's schema, made by whoever owns the database: the process of the gateway itself, or the owner before it starts. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Path from "node:path"
import * as Migrations from "../postgres/Migrations.ts"

/** The name of the schema. */
export const schemaName = "sandbox_gateway"

/** An advisory lock's number that nothing else uses: processes that start together create the schema one after another. */
const migrationLock = 7_315_946

const set = Migrations.setOf(Path.resolve(import.meta.dirname, "../.."), "sandbox")

/** There is no sandbox in this database, or one of another version. */
export class NoSandbox extends Schema.TaggedError<NoSandbox>()("NoSandbox", {}) {
  override get message() {
    return "GATEWAY_URL is not set, and this database has no sandbox gateway: set it as the service has it"
  }
}

/** Fails where the sandbox has no schema here, or an older one. It makes nothing. */
export const check = Effect.gen(function* () {
  if (!(yield* Effect.orDie(Migrations.isCurrent(set)))) return yield* new NoSandbox()
})

/** Makes the schema what this version needs. Where it is that already, it only reads: the service's role may not do more. */
export const migrate = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  if (yield* Migrations.isCurrent(set)) return
  yield* sql.withTransaction(
    Effect.gen(function* () {
      // IF NOT EXISTS alone still fails where two sessions create the same schema at once.
      yield* sql`SELECT pg_advisory_xact_lock(${migrationLock}::int8)`
      yield* sql`CREATE SCHEMA IF NOT EXISTS ${sql(schemaName)}`
      yield* Migrations.apply([set])
    })
  )
}).pipe(Migrations.forbidden(set.table))
