/** The doctor and what is around the tables: the server, the network, a pooler, a role without rights, what watches the service. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { ScrapeFailed } from "../../../src/operations/doctor/MetricChecks.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import { apply } from "../../../src/postgres/Migrations.ts"
import * as Database from "../../../src/postgres/Database.ts"
import { sets } from "../../../src/main/Storage.ts"
import { eventually } from "../../support/Counters.ts"
import * as MailServer from "../../support/MailServer.ts"
import * as OwnPostgres from "../../support/OwnPostgres.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"
import * as TransactionPooler from "../../support/TransactionPooler.ts"
import { examine, session } from "./Examined.ts"

/** The doctor reaches the test's database at another address. */
const through = (address: { readonly host: string; readonly port: number }) =>
  Effect.map(TestDatabase, ({ url }) => {
    const changed = new URL(Redacted.value(url))
    changed.hostname = address.host
    changed.port = String(address.port)
    return DatabaseSettings.layerOf({ url: Redacted.make(changed.toString()) })
  })

const upstream = Effect.map(TestDatabase, ({ url }) => {
  const { hostname, port } = new URL(Redacted.value(url))
  return { host: hostname, port: Number(port) }
})

const problemsOf = ({ findings }: { readonly findings: ReadonlyArray<{ readonly problem: string }> }) =>
  findings.map(({ problem }) => problem).join("\n")

it.live("a pooler in transaction mode loses wake-ups, and is named", () =>
  Effect.gen(function* () {
    const pooler = yield* TransactionPooler.make(yield* upstream)
    const report = yield* Effect.provide(examine(), yield* through(pooler))
    assert.match(
      problemsOf(report.of("own-sessions")),
      /^there is a pooler in transaction mode between us and Postgres/
    )
    assert.match(problemsOf(report.of("wake-ups")), /^a wake-up did not arrive within 3 s: each event waits/)
    assert.match(report.of("wake-ups").findings[0]?.fix ?? "", /^Connect to Postgres itself/)
    const direct = yield* examine()
    assert.deepStrictEqual(
      ["own-sessions", "wake-ups"].map((name) => direct.of(name).outcome),
      ["ok", "ok"]
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("a slow network is told in milliseconds", () =>
  Effect.gen(function* () {
    const proxy = yield* TcpProxy.make({ upstream: yield* upstream })
    yield* proxy.delay(150)
    const { of } = yield* Effect.provide(examine(), yield* through(proxy))
    assert.match(problemsOf(of("statement-time")), /^a statement that does nothing takes (29\d|[34]\d\d)\.\d ms/)
    assert.isNotNull(of("statement-time").findings[0]?.command)
    assert.match((yield* examine()).of("statement-time").told, /^a statement takes \d+\.\d ms$/)
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("a database that can't be reached is one finding, and nothing else is said of it", () =>
  Effect.gen(function* () {
    const closed = DatabaseSettings.layerOf({ url: Redacted.make("postgres://nobody@127.0.0.1:9/none") })
    const { checks, findings, of } = yield* Effect.provide(examine(), closed)
    assert.deepStrictEqual([checks.length, findings], [1, 1])
    assert.match(
      problemsOf(of("reachable")),
      /^the database can't be reached, so nothing else was looked at: .*ECONNREFUSED/
    )
  })
)

it.live("its sessions can't write, and wait for nobody's lock", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // A table that another session has locked for itself: the check that reads it gives up, and says so.
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* session("BEGIN", "LOCK TABLE outbox_holds IN ACCESS EXCLUSIVE MODE")
        const { of } = yield* examine()
        assert.strictEqual(of("outbox-holds").outcome, "not checked")
        assert.match(of("outbox-holds").told, /lock timeout/)
        assert.strictEqual(of("inbox-holds").outcome, "ok")
      })
    )
    // A function that writes wherever it is called: the clock.
    yield* sql`CREATE TABLE ticks (at timestamptz)`
    yield* sql`
      CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE
      AS 'INSERT INTO ticks VALUES (clock_timestamp()) RETURNING at'`
    const { of } = yield* examine()
    assert.match(of("clock").told, /read-only transaction/)
    assert.deepStrictEqual(yield* sql`SELECT FROM ticks`, [])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("what its role may not see is not checked, and says which grant it lacks", () =>
  Effect.gen(function* () {
    const { name, url } = yield* TestDatabase
    const role = `reader_${name}`
    const sql = yield* PgClient.PgClient
    yield* Effect.acquireRelease(
      Effect.all([
        sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'x'`),
        sql.unsafe(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role}`),
        sql.unsafe(`REVOKE SELECT ON inbox_holds FROM ${role}`)
      ]),
      () => Effect.orDie(Effect.andThen(sql.unsafe(`DROP OWNED BY ${role}`), sql.unsafe(`DROP ROLE ${role}`)))
    )
    const own = new URL(Redacted.value(url))
    own.username = role
    own.password = "x"
    const { notChecked, of } = yield* Effect.provide(
      examine(),
      DatabaseSettings.layerOf({ url: Redacted.make(own.toString()) })
    )
    const { told } = of("old-snapshots")
    assert.match(told, /does not see the transactions of \d+ other sessions; .*: GRANT pg_read_all_stats TO/)
    assert.isTrue(told.endsWith(` TO ${role}`), told)
    assert.match(of("inbox-holds").told, /^this role may not look: permission denied for table inbox_holds/)
    assert.isAtLeast(notChecked, 2)
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live(
  "a server of its own: connections that run out, autovacuum that is off, a slot without a reader, and durability",
  () =>
    Effect.gen(function* () {
      const server = yield* OwnPostgres.acquire({
        settings: { max_connections: "20", superuser_reserved_connections: "3" }
      })
      const there = DatabaseSettings.layerOf({ url: server.url })
      yield* Effect.provide(apply(sets), Layer.provide(Database.layerPatient, there))
      const look = Effect.provide(examine(), there)
      const before = yield* look
      assert.match(problemsOf(before.of("settings")), /^fsync is off .*\nfull_page_writes is off/)
      assert.deepStrictEqual([before.of("connections").outcome, before.of("replication-slots").outcome], ["ok", "ok"])

      yield* Effect.promise(() =>
        server.restart({
          max_connections: "20",
          superuser_reserved_connections: "3",
          autovacuum: "off",
          fsync: "on",
          full_page_writes: "on"
        })
      )
      const busy = yield* Layer.build(
        PgClient.layer({ url: server.url, maxConnections: 14, idleTimeout: "10 minutes" })
      )
      yield* Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        yield* sql`SELECT slot_name::text FROM pg_create_physical_replication_slot('gone', true)`
        yield* sql`CREATE TABLE filler AS SELECT repeat('x', 100) FROM generate_series(1, 20000)`
        yield* Effect.all(
          Array.from({ length: 14 }, () => Effect.scoped(Effect.andThen(sql.reserve, Effect.sleep(1_500)))),
          {
            concurrency: "unbounded"
          }
        ).pipe(Effect.forkScoped)
        const { of } = yield* Effect.delay(look, 500)
        assert.strictEqual(of("settings").outcome, "ok", problemsOf(of("settings")))
        assert.match(
          problemsOf(of("connections")),
          /^1\d of 17 connections are used: a process that starts may get none.*\nautovacuum is off/
        )
        assert.match(
          problemsOf(of("replication-slots")),
          /^the replication slot gone has no reader and holds \d+ MB of write-ahead log/
        )
        assert.match(of("replication-slots").findings[0]?.command ?? "", /pg_drop_replication_slot\('gone'\)/)
        // What the server's file has: a later setting wins, once the server has read it.
        yield* sql.unsafe("ALTER SYSTEM SET session_replication_role = replica")
        yield* sql`SELECT pg_reload_conf()`
        const altered = Effect.map(look, (report) => report.of("settings").findings.map(({ command }) => command ?? ""))
        yield* eventually(
          "the server to read it",
          Effect.map(altered, ({ length }) => length === 1)
        )
        const [command = ""] = yield* altered
        const statements = [...command.matchAll(/-c "([^"]*)"/g)].map(([, statement = ""]) => statement)
        assert.deepStrictEqual(statements, [
          "ALTER SYSTEM SET session_replication_role = origin",
          "SELECT pg_reload_conf()"
        ])
        for (const statement of statements) yield* sql.unsafe(statement)
        yield* eventually(
          "the server to read it",
          Effect.map(altered, ({ length }) => length === 0)
        )
      }).pipe(Effect.provide(busy))
    }).pipe(Effect.scoped)
)

it.live("a mail server is greeted, and no mail is begun", () =>
  Effect.gen(function* () {
    const server = yield* MailServer.make()
    const { of } = yield* examine({ SMTP_URL: `smtp://127.0.0.1:${server.port}` })
    assert.match(of("mail-time").told, /^the mail server greets in \d+ ms$/)
    assert.deepStrictEqual(server.taken, [])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("metrics that a process does not have, and alerts over them", () =>
  Effect.gen(function* () {
    const none = yield* examine({}, Effect.succeed("# TYPE outbox_events_pending gauge\noutbox_events_pending 0\n"))
    // One finding each: more would bury what is broken.
    assert.match(
      problemsOf(none.of("metrics")),
      /^that process does not tell depth \([^)]+\), throughput \([^)]+\), errors \([^)]+\), latency \([^)]+\)$/
    )
    assert.notInclude(problemsOf(none.of("metrics")), "outbox_events_pending")
    assert.match(
      problemsOf(none.of("alerts")),
      /^\d+ alerts can never fire by that process: [^\n]*OutboxDeadLetters \(it has no outbox_dead_letters\)[^\n]*$/
    )
    assert.notInclude(problemsOf(none.of("alerts")), "OutboxEventsBacklog")
    assert.match(none.of("alerts").findings[0]?.command ?? "", /doctor --url/)
    const unknown = yield* examine()
    assert.deepStrictEqual(
      [unknown.of("metrics").outcome, unknown.of("alerts").told],
      ["not checked", "no process runs"]
    )
    const silent = yield* examine({}, Effect.fail(new ScrapeFailed({ reason: "nobody answers", wasNamed: true })))
    assert.strictEqual(problemsOf(silent.of("metrics")), "nobody answers")
  }).pipe(Effect.provide(TestDatabase.layerPool))
)
