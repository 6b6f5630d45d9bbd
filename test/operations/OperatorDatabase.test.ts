/** An operator's command looks at the database that is there, says which one that is, and creates and migrates none. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { PgClient } from "@effect/sql-pg"
import { existsSync } from "node:fs"
import * as Path from "node:path"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const world = Layer.mergeAll(TestDatabase.layer, Directory.layer)

it.live("an operator's command makes no embedded database where there is none", () =>
  Effect.gen(function* () {
    const { path } = yield* Directory
    const inside = Path.join(path, "data")
    const status = commandOf("outbox", environmentWith({ DATABASE_URL: "", DATA_DIRECTORY: inside }))
    const { code, stderr } = yield* status("status")
    assert.strictEqual(code, 1)
    assert.deepStrictEqual(stderr.trim().split("\n"), [
      `paid-once: the database is the embedded one in ${inside}/postgres`,
      `paid-once: There is no database in ${inside}/postgres. Name one in DATABASE_URL, or begin with npm start.`
    ])
    assert.isFalse(existsSync(inside))
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an operator's command migrates no database: an empty one is refused, and stays empty", () =>
  Effect.gen(function* () {
    const { name, url } = yield* TestDatabase.make("template0")
    const { code, stderr } = yield* commandOf("inbox", environmentWith({ DATABASE_URL: Redacted.value(url) }))("list")
    assert.strictEqual(code, 1)
    assert.match(
      stderr,
      new RegExp(`^paid-once: the database is ${name} at 127.0.0.1:\\d+\\npaid-once: DATABASE_URL: its schema`)
    )
    assert.notInclude(stderr, new URL(Redacted.value(url)).password)
    const tables = yield* Effect.provide(
      Effect.flatMap(PgClient.PgClient, (sql) => sql`SELECT 1 AS one FROM pg_tables WHERE schemaname = 'public'`),
      PgClient.layer({ url })
    )
    assert.strictEqual(tables.length, 0)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a variable that looks like DATABASE_URL is named, for another database is looked at", () =>
  Effect.gen(function* () {
    const { path } = yield* Directory
    const env = environmentWith({ DATABASE_URL: "", DATABSE_URL: "postgres://elsewhere/shop", LOG_LEVEL: "Warn" })
    const { stderr } = yield* commandOf("outbox", env)("status")
    assert.include(stderr, "DATABSE_URL")
    assert.include(stderr, `the embedded one in ${path}/postgres`)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("without GATEWAY_URL no empty sandbox answers in the place of the service's gateway", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const check = commandOf("payments", environmentWith({}))
    const { code, stderr } = yield* check("check", "0192a000-0000-7000-8000-000000000000")
    assert.strictEqual(code, 1)
    assert.include(stderr, "paid-once: GATEWAY_URL is not set, and this database has no sandbox gateway")
    const schemas = yield* Effect.provide(
      Effect.flatMap(
        PgClient.PgClient,
        (sql) => sql`SELECT 1 AS one FROM pg_namespace WHERE nspname = 'sandbox_gateway'`
      ),
      PgClient.layer({ url })
    )
    assert.strictEqual(schemas.length, 0)
  }).pipe(Effect.scoped, Effect.provide(world))
)
