/** What the embedded server refuses to the service and to the owner of its database, and how it may be reached at all. */
import { PgClient } from "@effect/sql-pg"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Exit, Redacted, Scope } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as EmbeddedPostgres from "../../../src/postgres/embedded/EmbeddedPostgres.ts"

const scope = Effect.runSync(Scope.make())
let server: EmbeddedPostgres.EmbeddedPostgres
beforeAll(async () => {
  server = await Effect.runPromise(Scope.provide(EmbeddedPostgres.acquireTemporary({ fsync: "off" }), scope))
})
afterAll(async () => {
  await Effect.runPromise(Scope.close(scope, Exit.void))
  rmSync(open, { recursive: true, force: true })
})

const query = (url: Redacted.Redacted, statement: string) =>
  SqlClient.SqlClient.use((sql) => sql.unsafe<Record<string, unknown>>(statement)).pipe(
    Effect.provide(PgClient.layer({ url, maxConnections: 1 }))
  )

/** The message of Postgres. */
const messageOf = (error: SqlError.SqlError) => String((error.reason.cause as Error | undefined)?.message ?? error)

/** A directory of this run alone. Everybody may write there, so that only Postgres' own refusal keeps a file from it. */
const open = mkdtempSync(join(tmpdir(), "paid-once-open-"))
chmodSync(open, 0o777)
const target = join(open, "was-here")

/** What would let a role reach the machine, other sessions or more rights. */
const forbidden = [
  `COPY (SELECT 1) TO PROGRAM 'touch ${target}'`,
  `COPY (SELECT 1) TO '${target}'`,
  "SELECT pg_read_file('/etc/passwd')",
  "SELECT pg_read_binary_file('PG_VERSION')",
  "SELECT pg_ls_dir('/')",
  "SELECT pg_ls_logdir()",
  "SELECT pg_stat_file('/etc/passwd')",
  "SELECT lo_import('/etc/passwd')",
  `SELECT lo_export(1, '${target}')`,
  "ALTER SYSTEM SET archive_command = 'touch x'",
  "SELECT pg_reload_conf()",
  "LOAD '/lib/x86_64-linux-gnu/libc.so.6'",
  "CREATE FUNCTION public.run(text) RETURNS int LANGUAGE c AS '/lib/x86_64-linux-gnu/libc.so.6', 'system'",
  "CREATE FUNCTION public.run(text) RETURNS int LANGUAGE internal AS 'int4in'",
  "CREATE TRUSTED LANGUAGE other HANDLER plpgsql_call_handler",
  "CREATE EVENT TRIGGER watcher ON ddl_command_start EXECUTE FUNCTION pg_catalog.pg_notify()",
  "SET session_replication_role = replica",
  "SET log_statement = 'none'",
  "SET ROLE paid_once",
  "SET SESSION AUTHORIZATION paid_once",
  "ALTER ROLE CURRENT_USER SUPERUSER",
  "CREATE ROLE other LOGIN",
  "CREATE DATABASE other",
  `CREATE TABLESPACE other LOCATION '${open}'`,
  "GRANT pg_execute_server_program TO CURRENT_USER",
  "GRANT pg_read_server_files TO CURRENT_USER",
  "SELECT rolpassword FROM pg_authid",
  "SELECT * FROM pg_hba_file_rules",
  "SELECT pg_create_physical_replication_slot('kept')",
  "SELECT pg_switch_wal()",
  "SELECT lo_creat(-1)",
  "SELECT lo_create(0)",
  "SELECT lo_from_bytea(0, 'x')"
]

describe("the embedded server", () => {
  for (const [name, urlOf] of [
    ["the service", () => server.url],
    ["the owner", () => server.ownerUrl]
  ] as const) {
    it.live(`refuses programs, files, settings and more rights to ${name}`, () =>
      Effect.gen(function* () {
        for (const statement of forbidden) {
          const error = yield* Effect.flip(query(urlOf(), statement))
          assert.match(
            messageOf(error),
            /permission denied|must be (superuser|owner)|is not allowed|Only roles with|must have/i,
            statement
          )
        }
        assert.isFalse(existsSync(target))
        const memberships = yield* query(
          urlOf(),
          "SELECT 1 FROM pg_auth_members JOIN pg_roles ON pg_roles.oid = member WHERE rolname = current_user"
        )
        assert.deepStrictEqual(memberships, [])
        const error = yield* Effect.flip(
          query(Redacted.make(Redacted.value(urlOf()).replace("/paid_once?", "/postgres?")), "SELECT 1")
        )
        assert.match(messageOf(error), /permission denied for database "postgres"/)
      })
    )
  }

  it.live("refuses extensions that reach out of the database", () =>
    Effect.gen(function* () {
      const available = yield* query(
        server.superuserUrl,
        "SELECT name FROM pg_available_extension_versions WHERE superuser AND NOT trusted AND requires IS NULL"
      )
      for (const { name } of available) {
        for (const url of [server.url, server.ownerUrl]) {
          const error = yield* Effect.flip(query(url, `CREATE EXTENSION "${String(name)}"`))
          assert.match(messageOf(error), /permission denied|must be superuser/i, String(name))
        }
      }
    })
  )

  it.live("lets the service connect, and nothing else before it was granted", () =>
    Effect.gen(function* () {
      yield* query(server.ownerUrl, "CREATE TABLE owned (id int)")
      for (const statement of [
        "SELECT * FROM owned",
        "CREATE TABLE other (id int)",
        "CREATE TEMP TABLE other (id int)",
        "CREATE SCHEMA other"
      ]) {
        assert.match(messageOf(yield* Effect.flip(query(server.url, statement))), /permission denied/, statement)
      }
    })
  )

  it.live("refuses ALTER SYSTEM to its superuser too", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(query(server.superuserUrl, "ALTER SYSTEM SET work_mem = '8MB'"))
      assert.match(messageOf(error), /ALTER SYSTEM is not allowed/)
    })
  )

  it.live("admits by SCRAM only, on a socket that only its account can reach", () =>
    Effect.gen(function* () {
      const rules = yield* query(server.superuserUrl, "SELECT DISTINCT auth_method FROM pg_hba_file_rules")
      assert.deepStrictEqual(rules, [{ auth_method: "scram-sha-256" }])
      const kept = yield* query(
        server.superuserUrl,
        "SELECT count(*)::int4 AS count FROM pg_authid WHERE rolcanlogin AND rolpassword NOT LIKE 'SCRAM-SHA-256$%'"
      )
      assert.deepStrictEqual(kept, [{ count: 0 }])
      const settings = yield* query(
        server.superuserUrl,
        "SELECT current_setting('listen_addresses') AS listens, current_setting('password_encryption') AS encryption"
      )
      assert.deepStrictEqual(settings, [{ listens: "", encryption: "scram-sha-256" }])
      assert.strictEqual(statSync(server.socketDirectory).mode & 0o777, 0o700)
      const pid = Number(readFileSync(join(server.socketDirectory, "postmaster.pid"), "utf8").split("\n")[0])
      assert.strictEqual(statSync(server.socketDirectory).uid, statSync(`/proc/${pid}`).uid)
      const wrong = Redacted.make(Redacted.value(server.url).replace(/service:[0-9a-f]+/, "service:wrong"))
      assert.match(messageOf(yield* Effect.flip(query(wrong, "SELECT 1"))), /password authentication failed/)
    })
  )

  it("tells no role another one's password", () => {
    const passwords = [server.url, server.ownerUrl, server.superuserUrl].map(
      (url) => new URL(Redacted.value(url)).password
    )
    assert.strictEqual(new Set(passwords).size, 3)
  })
})
