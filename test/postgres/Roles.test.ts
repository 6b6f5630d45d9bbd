/** The service's role has the rows, and nothing else; the owner of the schema makes it so at each start. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { database } from "../../src/main/Storage.ts"
import { Migrated } from "../../src/postgres/Migrations.ts"
import * as Roles from "../../src/postgres/Roles.ts"
import * as SandboxSchema from "../../src/sandbox/SandboxSchema.ts"
import { root } from "../support/TestDatabase.ts"
import { configOf, make, on } from "../support/TwoRoles.ts"

type Two = Effect.Success<typeof make>

/** A start with these roles: what it migrated, and its log lines. */
const start = Effect.fnUntraced(function* (
  { ownerUrl, serviceUrl }: Pick<Two, "serviceUrl"> & Partial<Two>,
  variables: Readonly<Record<string, string>> = {}
) {
  const config = yield* configOf({
    DATABASE_URL: Redacted.value(serviceUrl),
    ...(ownerUrl === undefined ? {} : { DATABASE_OWNER_URL: Redacted.value(ownerUrl) }),
    ...variables
  })
  const lines: Array<string> = []
  const logger = Logger.make(
    ({ message }) =>
      void lines.push(
        ...String(message)
          .split("\n")
          .filter((line) => line.startsWith("DATABASE_"))
      )
  )
  const { applied } = yield* Effect.service(Migrated).pipe(
    Effect.provide(Layer.fresh(database(config)), { local: true }),
    Effect.provide(Logger.layer([logger]))
  )
  return { applied, lines }
})

const refused = (statement: string) =>
  Effect.map(
    Effect.flip(SqlClient.SqlClient.use((sql) => sql.unsafe(statement))),
    ({ reason }) => (reason as { readonly cause?: { readonly code?: string } }).cause?.code ?? reason._tag
  )

const run = (statement: string) => SqlClient.SqlClient.use((sql) => sql.unsafe(statement))

// 42501 is a want of rights; 0A000 is ALTER SYSTEM where the server allows it to nobody.
it.live("the service's role is refused DDL, TRUNCATE, files, programs, settings and passwords", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* start(two)
    yield* Effect.forEach(
      [
        "CREATE TABLE own (n integer)",
        "CREATE TEMPORARY TABLE own (n integer)",
        "CREATE FUNCTION own() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA own",
        "CREATE EXTENSION plperl",
        "CREATE ROLE own",
        "ALTER TABLE orders ADD COLUMN own integer",
        "ALTER TABLE outbox_events DISABLE TRIGGER ALL",
        "CREATE INDEX own ON orders (status)",
        "DROP TABLE orders",
        "DROP TABLE event_log_default",
        "TRUNCATE orders",
        "TRUNCATE event_log",
        "ALTER TABLE orders OWNER TO CURRENT_USER",
        "CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
        "COPY orders TO PROGRAM 'cat > /tmp/own'",
        "COPY orders FROM PROGRAM 'id'",
        "COPY orders TO '/tmp/own'",
        "COPY orders FROM '/etc/passwd'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/passwd')",
        "ALTER SYSTEM SET archive_command = 'id'",
        "SET session_replication_role = 'replica'",
        "SELECT pg_reload_conf()",
        "SELECT rolpassword FROM pg_authid",
        "SELECT setval('outbox_events_seq_seq', 1)",
        "UPDATE operator_audit SET reason = 'another'",
        "DELETE FROM operator_audit",
        "DELETE FROM migrations_mechanism",
        "INSERT INTO migrations_business VALUES (9999, now(), 'own')",
        `SET ROLE ${two.owner}`
      ],
      (statement) => Effect.map(refused(statement), (code) => assert.match(code, /^(42501|0A000)$/, statement))
    ).pipe(on(two.serviceUrl))
  }).pipe(Effect.scoped)
)

it.live("the owner is no superuser either: files, programs, settings and passwords are refused to it", () =>
  Effect.gen(function* () {
    const { ownerUrl } = yield* make
    yield* Effect.forEach(
      [
        "COPY (SELECT 1) TO PROGRAM 'cat > /tmp/own'",
        "COPY (SELECT 1) TO '/tmp/own'",
        "SELECT pg_read_file('/etc/passwd')",
        "ALTER SYSTEM SET archive_command = 'id'",
        "SELECT rolpassword FROM pg_authid",
        "CREATE ROLE own SUPERUSER"
      ],
      (statement) => Effect.map(refused(statement), (code) => assert.match(code, /^(42501|0A000)$/, statement))
    ).pipe(on(ownerUrl))
  }).pipe(Effect.scoped)
)

it.live("a second start grants nothing, and one that finds other grants sets them right", () =>
  Effect.gen(function* () {
    const two = yield* make
    assert.isNotEmpty((yield* start(two)).applied)
    const again = Roles.grant(two.service, ["public", "sandbox_gateway"]).pipe(on(two.ownerUrl))
    assert.strictEqual(yield* again, 0)
    yield* Effect.all([
      run(`GRANT TRUNCATE, TRIGGER ON orders TO ${two.service}`),
      run(`GRANT UPDATE ON operator_audit TO ${two.service}`),
      run(`REVOKE DELETE ON outbox_events FROM ${two.service}`)
    ]).pipe(on(two.ownerUrl))
    assert.deepStrictEqual((yield* start(two)).applied, [])
    assert.strictEqual(yield* refused("TRUNCATE orders").pipe(on(two.serviceUrl)), "42501")
    assert.strictEqual(yield* refused("UPDATE operator_audit SET reason = ''").pipe(on(two.serviceUrl)), "42501")
    yield* run("DELETE FROM outbox_events").pipe(on(two.serviceUrl))
    assert.strictEqual(yield* again, 0)
  }).pipe(Effect.scoped)
)

it.live("processes that start together migrate and grant once, and none fails", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* Effect.all([start(two), start(two), start(two)], { concurrency: "unbounded" })
    assert.strictEqual(yield* Roles.grant(two.service, ["public", "sandbox_gateway"]).pipe(on(two.ownerUrl)), 0)
  }).pipe(Effect.scoped)
)

it.live("the tables of a later migration, and the partitions of later days, are the service's to use at once", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* start(two)
    yield* run("CREATE TABLE later (n integer)").pipe(on(two.ownerUrl))
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`INSERT INTO later VALUES (1)`
      yield* sql`UPDATE later SET n = 2`
      yield* sql`DELETE FROM later`
      // As the upkeep of the service does, which may not do it itself.
      yield* sql`SELECT make_daily_partition('event_log', (clock_now() AT TIME ZONE 'UTC')::date + 9, 0)`
      const [row] = yield* sql<{ readonly child: string; readonly owner: string }>`
        SELECT child::text AS child, rolname AS owner FROM time_partitions('event_log')
        JOIN pg_class ON pg_class.oid = child JOIN pg_roles ON pg_roles.oid = relowner
        ORDER BY from_time DESC NULLS LAST LIMIT 1`
      assert.strictEqual(row!.owner, two.owner)
      yield* sql.unsafe(`SELECT count(*) FROM ${row!.child}`)
    }).pipe(on(two.serviceUrl))
  }).pipe(Effect.scoped)
)

it.live("the functions with the owner's rights refuse other tables, other days and other callers", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* start(two)
    const today = "(clock_now() AT TIME ZONE 'UTC')::date"
    yield* Effect.forEach(
      [
        `make_daily_partition('orders', ${today}, 0)`,
        `make_daily_partition(NULL, ${today}, 0)`,
        `make_daily_partition('pg_authid', ${today}, 0)`,
        `make_daily_partition('event_log; DROP TABLE orders', ${today}, 0)`,
        `make_daily_partition('event_log', ${today} + 32, 0)`,
        `make_daily_partition('event_log', NULL, 0)`,
        `make_daily_partition('event_log', ${today} + 20, NULL)`,
        "drop_daily_partition('orders', 'orders')",
        "drop_daily_partition('event_log', 'orders')",
        "drop_daily_partition('event_log', 'event_log')",
        "drop_daily_partition('event_log', 'event_log_default')",
        "drop_daily_partition('event_log', 'processed_events_default')",
        `drop_daily_partition('event_log', 'event_log_' || to_char(${today}, 'YYYYMMDD'))`,
        "drop_daily_partition('event_log', NULL)"
      ],
      (call) => Effect.map(refused(`SELECT ${call}`), (code) => assert.strictEqual(code, "22023", call))
    ).pipe(on(two.serviceUrl))
    const other = yield* make
    const stranger = new URL(Redacted.value(other.serviceUrl))
    stranger.pathname = new URL(Redacted.value(two.serviceUrl)).pathname
    const call = `SELECT make_daily_partition('event_log', ${today}, 0)`
    assert.strictEqual(yield* refused(call).pipe(on(Redacted.make(stranger.toString()))), "42501")
  }).pipe(Effect.scoped)
)

it.live("a temporary table of the same name does not lead a function with the owner's rights astray", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* start(two)
    // In an installation that has left PUBLIC its right to temporary tables.
    yield* run(`GRANT TEMPORARY ON DATABASE ${new URL(Redacted.value(two.ownerUrl)).pathname.slice(1)} TO PUBLIC`).pipe(
      on(two.ownerUrl)
    )
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TEMPORARY TABLE event_log (event_id uuid NOT NULL) PARTITION BY RANGE (event_id)`
      yield* sql`SELECT make_daily_partition('event_log', (clock_now() AT TIME ZONE 'UTC')::date + 9, 0)`
      const rows = yield* sql`
        SELECT inhparent::regclass::text AS parent FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE relname = 'event_log_' || to_char((clock_now() AT TIME ZONE 'UTC')::date + 9, 'YYYYMMDD')`
      assert.deepStrictEqual(rows, [{ parent: "public.event_log" }])
    }).pipe(on(two.serviceUrl))
  }).pipe(Effect.scoped)
)

it.live("with the service's URL alone a start finds the schema as it has to be, and changes nothing", () =>
  Effect.gen(function* () {
    const two = yield* make
    const early = yield* Effect.flip(start({ serviceUrl: two.serviceUrl }))
    assert.strictEqual(
      (early as Error).message,
      "the schema is not up to date (migrations_mechanism), and this role may not change it (permission denied for schema public): " +
        "run paid-once migrate with DATABASE_OWNER_URL, the URL of the role that owns the tables"
    )
    yield* start(two)
    assert.deepStrictEqual(yield* start({ serviceUrl: two.serviceUrl }), { applied: [], lines: [] })
    yield* run(
      "DELETE FROM migrations_business WHERE migration_id = (SELECT max(migration_id) FROM migrations_business)"
    ).pipe(on(two.ownerUrl))
    const late = yield* Effect.flip(start({ serviceUrl: two.serviceUrl }))
    assert.match((late as Error).message, /^the schema is not up to date \(migrations_business\)/)
  }).pipe(Effect.scoped)
)

it.live("where the gateway is another, the service has no right to the sandbox's schema", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* start(two, { GATEWAY_URL: "http://gateway.example", GATEWAY_WEBHOOK_SECRET: "0123456789abcdef" })
    assert.deepStrictEqual(
      yield* run("SELECT FROM pg_namespace WHERE nspname = 'sandbox_gateway'").pipe(on(two.ownerUrl)),
      []
    )
  }).pipe(Effect.scoped)
)

it.live("a superuser, a service with the owner's rights, and tables of somebody else are each told in a line", () =>
  Effect.gen(function* () {
    const two = yield* make
    assert.match(
      (yield* start({ ...two, serviceUrl: two.ownerUrl })).lines.join("\n"),
      /^DATABASE_URL: the role \S+ has the rights of the owner \S+, so it may do all that DATABASE_OWNER_URL may; [^\n]*$/
    )
    const superuser = (yield* start({ serviceUrl: two.adminUrl })).lines
    assert.match(
      superuser.join("\n"),
      /^DATABASE_URL: the role \S+ is a superuser, so whoever takes over[^\n]*DATABASE_OWNER_URL$/
    )
    assert.deepStrictEqual((yield* start({ serviceUrl: two.ownerUrl })).lines, [])

    const another = yield* make
    yield* run("CREATE TABLE migrations_mechanism (migration_id integer, name text)").pipe(on(another.adminUrl))
    const error = yield* Effect.flip(start(another))
    assert.match(
      (error as Error).message,
      new RegExp(
        `^DATABASE_OWNER_URL: the tables belong to \\S+, and this role is ${another.owner}: a superuser has to hand them over`
      )
    )
    const restored = yield* Effect.flip(start({ serviceUrl: two.serviceUrl, ownerUrl: (yield* make).serviceUrl }))
    assert.match(
      (restored as Error).message,
      /^DATABASE_OWNER_URL: its role may not make the schema \(permission denied for schema public\): .*hardening\.md/
    )
    const away = new URL(Redacted.value(another.ownerUrl))
    away.password = "wrong"
    const wrong = yield* Effect.flip(start({ ...another, ownerUrl: Redacted.make(away.toString()) }))
    assert.match((wrong as Error).message, /^DATABASE_OWNER_URL: password authentication failed for user "owner_/)
  }).pipe(Effect.scoped)
)

it.live("a database that a superuser has migrated is handed over by the statements of docs/hardening.md", () =>
  Effect.gen(function* () {
    const two = yield* make
    yield* start({ serviceUrl: two.adminUrl })
    yield* SandboxSchema.migrate.pipe(on(two.adminUrl))
    const page = readFileSync(Path.join(root, "docs/hardening.md"), "utf8")
    const block = /DO \$\$[\s\S]*?\n\$\$;/.exec(page)![0].replaceAll("paid_once_owner", two.owner)
    yield* run(block).pipe(on(two.adminUrl))
    assert.deepStrictEqual((yield* start(two)).applied, [])
    assert.deepStrictEqual(yield* start({ serviceUrl: two.serviceUrl }), { applied: [], lines: [] })
    yield* run("SELECT make_daily_partition('event_log', (clock_now() AT TIME ZONE 'UTC')::date + 9, 0)").pipe(
      on(two.serviceUrl)
    )
    yield* run("SELECT count(*) FROM sandbox_gateway.charges").pipe(on(two.serviceUrl))
  }).pipe(Effect.scoped)
)
