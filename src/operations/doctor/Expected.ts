/** The schema as the migrations make it, from the files beside them, and the role that owns it. The checks of the schema compare with it. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { readdir, readFile } from "node:fs/promises"
import * as Path from "node:path"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"

/** The database has a schema that this release does not know: what it lacks or has in another way may be meant so. */
export class SchemaNewer extends Schema.TaggedError<SchemaNewer>()("SchemaNewer", { table: Schema.String }) {
  override get message() {
    return `a newer release has migrated this database (${this.table}): its own doctor knows the schema`
  }
}

const newestRow = Rows.one(Schema.Struct({ id: Schema.Int }))

/** Whether the database has a migration behind the last file of the set. */
const isNewer = Effect.fnUntraced(function* ({ directory, table }: MigrationSet) {
  const sql = yield* SqlClient.SqlClient
  const files = yield* Effect.promise(() => readdir(directory))
  const { id } = yield* newestRow(sql`SELECT coalesce(max(migration_id), 0)::int4 AS id FROM ${sql(table)}`)
  return files.every((file) => !file.endsWith(".sql") || Number.parseInt(file, 10) < id)
})

/** The lines of the file beside each set of migrations, or its parts. Fails with {@link SchemaNewer}: a fix would take back what is newer. */
export const linesOf = Effect.fnUntraced(function* (
  sets: ReadonlyArray<MigrationSet>,
  file: string,
  between: RegExp = /\n/
) {
  const parts = yield* Effect.forEach(sets, (set) =>
    Effect.gen(function* () {
      if (yield* isNewer(set)) return yield* new SchemaNewer({ table: set.table })
      const text = yield* Effect.promise(() => readFile(Path.join(set.directory, file), "utf8"))
      return text
        .trimEnd()
        .split(between)
        .map((line) => ({ line, set }))
    })
  )
  return parts.flat()
})

const ownerRow = Rows.one(Schema.Struct({ owner: Schema.String }))

/** The role that owns the tables. A view that a superuser makes is the superuser's, and the service may not read it: a fix makes it as the owner. */
export const owner = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    ownerRow(
      sql`SELECT relowner::regrole::text AS owner FROM pg_class WHERE oid = to_regclass('migrations_mechanism')`
    ),
    ({ owner }) => owner
  )
)
