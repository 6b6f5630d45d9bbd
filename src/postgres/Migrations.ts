/**
 * Migrations: numbered SQL files, each applied once, all pending ones in one transaction under a lock, so that any number of
 * processes may start together.
 *
 * Two versions of the code run on one schema during an upgrade: a migration only adds (expand); what nobody uses any more goes
 * with the release after (contract). See README, "Upgrading".
 */
import type { PgClient } from "@effect/sql-pg"
import { Array, Context, Effect, Layer, Order, Schema } from "effect"
import { Migrator, SqlClient, type SqlError } from "effect/sql"
import { readdir, readFile } from "node:fs/promises"
import * as Path from "node:path"

/** A folder of `NNNN_name.sql` files with a history table of its own, so that the mechanism can be lifted out alone. */
export interface MigrationSet {
  readonly table: string
  readonly directory: string
}

/** A migration file can't be read, has a wrong name, or failed; nothing of the set was applied. */
export class MigrationFailed extends Schema.TaggedError<MigrationFailed>()("MigrationFailed", {
  directory: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `migrations in ${this.directory}: ${this.reason}`
  }
}

const fileName = /^(\d{4})_([a-z_]+)\.sql$/

const load = (directory: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const names = Array.sort(yield* Effect.promise(() => readdir(directory)), Order.String)
    return yield* Effect.forEach(
      names.filter((name) => name.endsWith(".sql")),
      (name) =>
        Effect.gen(function* () {
          const match = fileName.exec(name)
          if (match === null) return yield* new MigrationFailed({ directory, reason: `${name} is not NNNN_name.sql` })
          const text = yield* Effect.promise(() => readFile(Path.join(directory, name), "utf8"))
          // One DO block a file: the extended protocol takes one statement at a time, and plpgsql takes them all.
          const block = `DO $migration$ BEGIN\n${text}\nEND $migration$`
          const migration: Migrator.ResolvedMigration = [Number(match[1]), match[2]!, Effect.succeed(sql.unsafe(block))]
          return migration
        })
    )
  })

/** Applies what is pending in each set, in order; returns the names of what it applied. */
export const apply = Effect.fn("Migrations.apply")(function* (
  sets: ReadonlyArray<MigrationSet>
): Effect.fn.Return<ReadonlyArray<string>, MigrationFailed | SqlError.SqlError, SqlClient.SqlClient> {
  const applied = yield* Effect.forEach(sets, ({ directory, table }) =>
    Effect.flatMap(load(directory), (migrations) =>
      Migrator.make({})({ loader: Effect.succeed(migrations), table })
    ).pipe(
      Effect.catchTag("MigrationError", (error) =>
        Effect.fail(new MigrationFailed({ directory, reason: `${error.message}: ${String(error.cause)}` }))
      )
    )
  )
  return applied.flat().map(([id, name]) => `${String(id).padStart(4, "0")}_${name}`)
})

/** Shows that migrations have been applied: what queries our tables asks for it. */
export class Migrated extends Context.Service<Migrated, { readonly applied: ReadonlyArray<string> }>()(
  "paid-once/postgres/Migrated"
) {
  static readonly layer = (
    sets: ReadonlyArray<MigrationSet>
  ): Layer.Layer<Migrated, MigrationFailed | SqlError.SqlError, PgClient.PgClient | SqlClient.SqlClient> =>
    Layer.effect(
      Migrated,
      Effect.map(apply(sets), (applied) => ({ applied }))
    )
}

/** The set in the folder `migrations/<name>` under `root`: `mechanism` for the tables of outbox, inbox and broker. */
export const setOf = (root: string, name: string): MigrationSet => ({
  table: `migrations_${name}`,
  directory: Path.join(root, "migrations", name)
})
