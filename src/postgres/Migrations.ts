/**
 * Migrations: numbered SQL files, each applied once. All pending files of a set are applied in one transaction under a lock, so any
 * number of processes may start together.
 *
 * During an upgrade two versions of the code run on one schema, so a migration only adds (expand). A column that no version uses any more is
 * dropped in the release after (contract). The rules for a new file are in `migrations/README.md`.
 */
import type { PgClient } from "@effect/sql-pg"
import { Array, Context, Effect, Layer, Order, Schema } from "effect"
import { Migrator, SqlClient, SqlError } from "effect/sql"
import { readdir, readFile } from "node:fs/promises"
import * as Path from "node:path"
import { innermost } from "../platform/Innermost.ts"
import * as Rows from "../platform/Rows.ts"

/** A folder of `NNNN_name.sql` files with a history table of its own, so that the mechanism can be lifted out alone. */
export interface MigrationSet {
  readonly table: string
  readonly directory: string
}

/** A migration file can't be read, has a wrong name, or failed. Nothing of the set was applied. */
export class MigrationFailed extends Schema.TaggedError<MigrationFailed>()("MigrationFailed", {
  directory: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `migrations in ${this.directory}: ${this.reason}`
  }
}

/**
 * The database was migrated by an older version whose files are no longer in the set: a later release squashed them into a baseline,
 * which applies to an empty database only. Nothing was changed.
 */
export class SchemaTooOld extends Schema.TaggedError<SchemaTooOld>()("SchemaTooOld", {
  table: Schema.String,
  migration: Schema.String
}) {
  override get message() {
    return (
      `the database has the schema of an older version (${this.migration} in ${this.table}), which this version can't upgrade: ` +
      "clear the embedded database with npm run reset, or point DATABASE_URL at an empty database"
    )
  }
}

/** The role may not read or change the schema, which is not up to date. Nothing was changed. */
export class SchemaForbidden extends Schema.TaggedError<SchemaForbidden>()("SchemaForbidden", {
  table: Schema.String,
  /** What Postgres says. */
  refusal: Schema.String
}) {
  override get message() {
    return (
      `the schema is not up to date (${this.table}), and this role may not change it (${this.refusal}): ` +
      "run paid-once migrate with DATABASE_OWNER_URL, the URL of the role that owns the tables"
    )
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
          // A DO block for each file: the extended protocol takes one statement at a time, and plpgsql takes them all.
          const block = `DO $migration$ BEGIN\n${text}\nEND $migration$`
          const migration: Migrator.ResolvedMigration = [Number(match[1]), match[2]!, Effect.succeed(sql.unsafe(block))]
          return migration
        })
    )
  })

const labelOf = (id: number, name: string) => `${String(id).padStart(4, "0")}_${name}`

const existence = Rows.one(Schema.Struct({ exists: Schema.Boolean }))
const recorded = Rows.first(Schema.Struct({ id: Schema.Int, name: Schema.String, newest: Schema.Int }))

/**
 * Whether the set has a file that was not applied. It reads only, so that a role that owns nothing can start on a current schema.
 *
 * Fails where the history begins before the set's first file. A newer history is fine: an older process may start during an upgrade.
 */
const isPending = Effect.fnUntraced(function* (
  { table }: MigrationSet,
  migrations: ReadonlyArray<Migrator.ResolvedMigration>
) {
  const sql = yield* SqlClient.SqlClient
  const { exists } = yield* existence(sql`SELECT to_regclass(quote_ident(${table})) IS NOT NULL AS exists`)
  if (!exists) return true
  const oldest = yield* recorded(sql`
    SELECT migration_id AS id, name, max(migration_id) OVER () AS newest FROM ${sql(table)} ORDER BY migration_id LIMIT 1`)
  const [first] = migrations
  if (oldest !== undefined && first !== undefined && oldest.id < first[0]) {
    return yield* new SchemaTooOld({ table, migration: labelOf(oldest.id, oldest.name) })
  }
  return oldest === undefined || migrations.some(([id]) => id > oldest.newest)
})

/** Names a refusal of Postgres for want of rights as {@link SchemaForbidden}. */
export const forbidden =
  (table: string) =>
  <A, E, R>(effect: Effect.Effect<A, E | SqlError.SqlError, R>) =>
    Effect.catchIf(
      effect,
      (error): error is E & SqlError.SqlError =>
        SqlError.isSqlError(error) && error.reason._tag === "AuthorizationError",
      (error) => Effect.fail(new SchemaForbidden({ table, refusal: innermost(error) }))
    )

/** Whether every file of the set was applied. */
export const isCurrent = (set: MigrationSet) =>
  Effect.flatMap(load(set.directory), (files) => Effect.map(isPending(set, files), (pending) => !pending))

/** Why migrations were not applied. */
export type MigrationsError = MigrationFailed | SchemaForbidden | SchemaTooOld | SqlError.SqlError

/** Applies what is pending in each set, in order, and returns the names of what it applied. Changes nothing in a {@link SchemaTooOld}. */
export const apply = Effect.fn("Migrations.apply")(function* (
  sets: ReadonlyArray<MigrationSet>
): Effect.fn.Return<ReadonlyArray<string>, MigrationsError, SqlClient.SqlClient> {
  const loaded = yield* Effect.forEach(sets, (set) => Effect.map(load(set.directory), (files) => ({ set, files })))
  const pending = yield* Effect.filter(loaded, ({ files, set }) => forbidden(set.table)(isPending(set, files)))
  const applied = yield* Effect.forEach(pending, ({ files, set: { directory, table } }) =>
    Migrator.make({})({ loader: Effect.succeed(files), table }).pipe(
      forbidden(table),
      Effect.catchTag("MigrationError", (error) =>
        Effect.fail(new MigrationFailed({ directory, reason: `${error.message}: ${String(error.cause)}` }))
      )
    )
  )
  return applied.flat().map(([id, name]) => labelOf(id, name))
})

/** Shows in a layer's requirements that migrations have been applied. Services that query the tables ask for it. */
export class Migrated extends Context.Service<Migrated, { readonly applied: ReadonlyArray<string> }>()(
  "paid-once/postgres/Migrated"
) {
  static readonly layer = (
    sets: ReadonlyArray<MigrationSet>
  ): Layer.Layer<Migrated, MigrationsError, PgClient.PgClient | SqlClient.SqlClient> =>
    Layer.effect(
      Migrated,
      Effect.map(apply(sets), (applied) => ({ applied }))
    )
}

/** The set in the folder `migrations/<name>` under `root`; `mechanism` has the tables of outbox, inbox, tasks and embedded broker. */
export const setOf = (root: string, name: string): MigrationSet => ({
  table: `migrations_${name}`,
  directory: Path.join(root, "migrations", name)
})

/** The mechanism's own tables. The files lie two folders above this one: in the repository, and in the package that `npm pack` makes. */
export const mechanism: MigrationSet = setOf(Path.resolve(import.meta.dirname, "../.."), "mechanism")
