/**
 * A Postgres for tests and for the programs of the lab: the embedded one in a temporary directory, without durability, or the
 * one at `TEST_DATABASE_URL` (a superuser's).
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { randomBytes } from "node:crypto"
import * as Path from "node:path"
import * as EmbeddedPostgres from "../../src/postgres/embedded/EmbeddedPostgres.ts"
import { freePort } from "../../src/postgres/embedded/Server.ts"
import * as Migrations from "../../src/postgres/Migrations.ts"

/** The checkout's directory, whatever the working directory is. */
export const root = Path.resolve(import.meta.dirname, "../..")

/** Durability costs time, and a test's database does not outlive the test. Only the tests that kill Postgres keep it on. */
const settings = { fsync: "off", full_page_writes: "off", max_connections: "300" }

/** An embedded server's URL, for the sockets of the lifted package, which refuse what they would ignore. */
export const forPlainSockets = (url: Redacted.Redacted): URL => {
  const plain = new URL(Redacted.value(url))
  plain.searchParams.delete("require_auth")
  return plain
}

/** A superuser's URL, until the scope closes. */
export const acquire = Effect.gen(function* () {
  const given = process.env["TEST_DATABASE_URL"]
  if (given !== undefined && given !== "") return given
  // By TCP, for the proxies and poolers of tests.
  const port = yield* freePort
  const { superuserUrl } = yield* EmbeddedPostgres.acquireTemporary({
    ...settings,
    listen_addresses: "127.0.0.1",
    port: String(port)
  })
  const url = forPlainSockets(superuserUrl)
  url.host = `127.0.0.1:${port}`
  return url.toString()
})

/**
 * Sets the time zone of a new database's sessions. It is nine and a half hours from UTC, and not by whole hours. A statement that takes its
 * day from the session's zone is wrong here for nine and a half hours of each day, although it is right on a server in UTC.
 */
export const farFromUtc = (database: string) => `ALTER DATABASE ${database} SET timezone = 'Pacific/Marquesas'`

/** `url` with another database's name. */
export const withDatabase = (url: string, database: string): string => {
  const changed = new URL(url)
  changed.pathname = `/${database}`
  return changed.toString()
}

/** A database with every migration applied, by its name; dropped when the scope closes. */
export const migrated = (url: string) =>
  Effect.gen(function* () {
    const name = `template_${randomBytes(4).toString("hex")}`
    const run = (statement: string) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(statement))
    const admin = Effect.provide(
      PgClient.layer({ url: Redacted.make(url), maxConnections: 1, connectTimeout: "60 seconds" })
    )
    yield* Effect.acquireRelease(run(`CREATE DATABASE ${name}`).pipe(admin), () =>
      run(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`).pipe(admin, Effect.orDie)
    )
    yield* run(farFromUtc(name)).pipe(admin)
    yield* Migrations.apply(["mechanism", "business"].map((set) => Migrations.setOf(root, set))).pipe(
      Effect.provide(
        PgClient.layer({ url: Redacted.make(withDatabase(url, name)), maxConnections: 1, connectTimeout: "60 seconds" })
      )
    )
    return name
  })
