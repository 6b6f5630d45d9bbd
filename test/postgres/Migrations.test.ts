/** The runner of migrations, on databases of its own: empty, of an older version, and of a newer one. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, type Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { copyFile, mkdir, readdir, writeFile } from "node:fs/promises"
import * as Path from "node:path"
import * as Migrations from "../../src/postgres/Migrations.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const sets = ["mechanism", "business"].map((name) => Migrations.setOf(root, name))

const on =
  (url: Redacted.Redacted) =>
  <A, E>(effect: Effect.Effect<A, E, SqlClient.SqlClient>) =>
    Effect.provide(effect, PgClient.layer({ url, maxConnections: 1 }), { local: true })

/** Another set of files with the history table of `mechanism`, as another version of the service has it. */
const otherVersion = Effect.fnUntraced(function* (files: Readonly<Record<string, string>>) {
  const directory = Path.join(yield* TestDatabase.dataDirectory, "mechanism")
  yield* Effect.promise(async () => {
    await mkdir(directory)
    for (const [name, text] of Object.entries(files)) await writeFile(Path.join(directory, name), text)
  })
  return { table: "migrations_mechanism", directory }
})

const tables = SqlClient.SqlClient.use(
  (sql) => sql`SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename`
)

it.live("processes that start together apply each file once, and a later start applies nothing", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const applied = yield* Effect.forEach([1, 2, 3], () => on(url)(Migrations.apply(sets)), { concurrency: 3 })
    const files = yield* Effect.promise(() => Promise.all(sets.map(({ directory }) => readdir(directory))))
    // Another process may apply each set.
    assert.deepStrictEqual(
      applied.flat().toSorted(),
      files
        .flat()
        .filter((name) => name.endsWith(".sql"))
        .map((name) => name.replace(".sql", ""))
        .toSorted()
    )
    assert.deepStrictEqual(yield* on(url)(Migrations.apply(sets)), [])
  }).pipe(Effect.scoped)
)

it.live("the schema of an older version is refused in one sentence, and left as it was", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const older = yield* otherVersion({
      "0001_clock.sql": "CREATE TABLE older ();",
      "0013_outbox_names.sql": "CREATE TABLE old ();"
    })
    yield* on(url)(Migrations.apply([older]))
    const before = yield* on(url)(tables)

    const error = yield* Effect.flip(on(url)(Migrations.apply(sets)))
    assert.strictEqual(error._tag, "SchemaTooOld")
    assert.strictEqual(
      error.message,
      "the database has the schema of an older version (0001_clock in migrations_mechanism), which this version can't upgrade: " +
        "clear the embedded database with npm run reset, or point DATABASE_URL at an empty database"
    )
    assert.deepStrictEqual(yield* on(url)(tables), before)
  }).pipe(Effect.scoped)
)

it.live("an older process starts on the schema of a newer version, as it does during an upgrade", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make()
    const newer = yield* otherVersion({ "0101_clock.sql": "", "0199_newer.sql": "CREATE TABLE newer ();" })
    assert.deepStrictEqual(yield* on(url)(Migrations.apply([newer])), ["0199_newer"])
    assert.deepStrictEqual(yield* on(url)(Migrations.apply(sets)), [])
  }).pipe(Effect.scoped)
)

/** Kept tables whose horizon is not the beginning of time, after the upgrade of a database that has the files before 0119. */
const horizonAfterUpgrade = (before: string) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const [mechanism, business] = sets
    const files = yield* Effect.promise(() => readdir(mechanism!.directory))
    const former = Path.join(yield* TestDatabase.dataDirectory, "former")
    yield* Effect.promise(async () => {
      await mkdir(former)
      for (const name of files.filter((name) => name.endsWith(".sql") && name < "0119"))
        await copyFile(Path.join(mechanism!.directory, name), Path.join(former, name))
    })
    yield* on(url)(Migrations.apply([{ ...mechanism!, directory: former }]))
    yield* on(url)(SqlClient.SqlClient.use((sql) => sql.unsafe(before)))
    yield* on(url)(Migrations.apply([mechanism!, business!]))
    return yield* on(url)(
      SqlClient.SqlClient.use(
        (sql) => sql<{ readonly name: string; readonly recent: boolean }>`
          SELECT table_name AS name, forgotten_before BETWEEN clock_now() - interval '1 hour' AND clock_now() AS recent
          FROM retention WHERE forgotten_before > '-infinity' ORDER BY table_name`
      )
    )
  }).pipe(Effect.scoped)

it.live(
  "what a database has lost before its upgrade is unknown, so its horizon begins there; a new one has lost nothing",
  () =>
    Effect.gen(function* () {
      const used = "INSERT INTO outbox_topics (topic, partitions) VALUES ('orders', 8)"
      assert.deepStrictEqual(yield* horizonAfterUpgrade(used), [
        { name: "event_log", recent: true },
        { name: "outbox_tasks", recent: true },
        { name: "processed_events", recent: true }
      ])
      assert.deepStrictEqual(yield* horizonAfterUpgrade("SELECT 1"), [])
    })
)

it.live("a file that fails, or has a wrong name, is named, and leaves the schema as it was", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    for (const [files, reason] of [
      [
        { "0101_sound.sql": "CREATE TABLE sound ();", "0102_broken.sql": "CREATE TABEL broken ();" },
        /102_broken.* failed/
      ],
      [{ "0101_sound.sql": "CREATE TABLE sound ();", "102_short.sql": "" }, /102_short\.sql is not NNNN_name\.sql/]
    ] as const) {
      const set = yield* otherVersion(files)
      const error = yield* Effect.flip(on(url)(Migrations.apply([set])))
      assert.strictEqual(error._tag, "MigrationFailed")
      assert.match(error.message, reason)
      const left = yield* on(url)(SqlClient.SqlClient.use((sql) => sql`SELECT to_regclass('sound') AS sound`))
      assert.deepStrictEqual(left, [{ sound: null }])
    }
  }).pipe(Effect.scoped)
)
