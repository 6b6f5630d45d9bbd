/** TLS to a real Postgres, with libpq's parameters: what each of them accepts, and what a refusal says. */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Redacted, Stream, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import * as Os from "node:os"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import { Ids } from "../../src/platform/Ids.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { beginStatement } from "../../src/platform/TransactionControl.ts"
import * as Database from "../../src/postgres/Database.ts"
import { mechanism, Migrated } from "../../src/postgres/Migrations.ts"
import * as Sockets from "../../src/postgres/tls/Sockets.ts"
import { authority, type Authority, type Certificate } from "../support/Certificates.ts"
import * as OwnPostgres from "../support/OwnPostgres.ts"
import { packetsOf } from "../support/Packets.ts"

/** A server with TLS, and its certificates. */
class World extends Context.Service<
  World,
  {
    readonly server: OwnPostgres.Server
    readonly ours: Authority
    readonly other: Authority
    readonly good: Certificate
    /** Starts the server with this certificate, or without TLS. */
    readonly serve: (certificate: Certificate | undefined) => Effect.Effect<void>
  }
>()("test/World") {
  static readonly layer = Layer.effect(
    World,
    Effect.gen(function* () {
      const ours = yield* authority("ours")
      const other = yield* authority("other")
      const server = yield* OwnPostgres.acquire({
        hba: [
          "local all postgres trust",
          "hostssl all careful all trust clientcert=verify-full",
          "hostssl all postgres all trust",
          "host all postgres all trust"
        ],
        settings: { listen_addresses: "*" }
      })
      const serve = (certificate: Certificate | undefined) =>
        Effect.promise(async () => {
          if (certificate === undefined) return server.restart({ listen_addresses: "*" })
          await server.restart({
            listen_addresses: "*",
            ssl: "on",
            ssl_cert_file: await server.file("server.crt", certificate.text.certificate),
            ssl_key_file: await server.file("server.key", certificate.text.key),
            ssl_ca_file: await server.file("root.crt", ours.rootText)
          })
        })
      const good = yield* Effect.promise(() => ours.sign("localhost"))
      yield* serve(good)
      yield* PgConnection.make({ url: server.url }).pipe(
        Effect.flatMap((admin) => admin.query("CREATE ROLE careful LOGIN")),
        Effect.scoped
      )
      return { server, ours, other, good, serve }
    })
  )
}

/** The server's URL with these parameters. */
const urlWith = (
  { port }: OwnPostgres.Server,
  parameters: Readonly<Record<string, string>>,
  { host = "localhost", user = "postgres" } = {}
) => Redacted.make(`postgres://${user}@${host}:${port}/postgres?${new URLSearchParams(parameters).toString()}`)

/** The service's pool at this URL: what its session is, and the start's log lines. */
const connect = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const lines: Array<string> = []
  const logger = Logger.make(({ message }) => void lines.push(String(message)))
  const rows = yield* SqlClient.SqlClient.use(
    (sql) => sql<{ readonly ssl: boolean }>`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`
  ).pipe(
    Effect.provide(
      Layer.fresh(Database.layerChecked).pipe(
        Layer.provide(
          Layer.unwrap(Effect.map(Sockets.warning, (sockets) => DatabaseSettings.layerOf({ url, sockets })))
        ),
        Layer.provide(Logger.layer([logger]))
      ),
      { local: true }
    )
  )
  return { isEncrypted: rows[0]!.ssl, warnings: lines.filter((line) => line.includes("encrypted")) }
})

const isEncrypted = (url: Redacted.Redacted) => Effect.map(connect(url), (session) => session.isEncrypted)

/** The one sentence of a start that is refused. */
const refusal = (url: Redacted.Redacted) =>
  Effect.map(Effect.flip(connect(url)), ({ message }) => {
    assert.notInclude(message, "\n")
    return message
  })

layer(World.layer, { excludeTestServices: true, timeout: "60 seconds" })("TLS", (it) => {
  it.effect("verify-full connects to a server with the right name and authority, by name only", () =>
    Effect.gen(function* () {
      const { ours, server } = yield* World
      const full = { sslmode: "verify-full", sslrootcert: ours.root }
      assert.isTrue(yield* isEncrypted(urlWith(server, full)))
      assert.match(
        yield* refusal(urlWith(server, full, { host: "127.0.0.1" })),
        /sslmode=verify-full: the certificate of 127\.0\.0\.1 is for another name \(DNS:localhost\); connect by that name, or set sslmode=verify-ca$/
      )
      assert.isTrue(yield* isEncrypted(urlWith(server, { ...full, sslmode: "verify-ca" }, { host: "127.0.0.1" })))
    })
  )

  it.effect(
    "a certificate of another authority is refused by verify-ca and verify-full, and by require with a root certificate",
    () =>
      Effect.gen(function* () {
        const { other, server } = yield* World
        for (const [sslmode, shown] of [
          ["verify-ca", "verify-ca"],
          ["verify-full", "verify-full"],
          ["require", "verify-ca"]
        ] as const) {
          assert.include(
            yield* refusal(urlWith(server, { sslmode, sslrootcert: other.root })),
            `sslmode=${shown}: no authority in sslrootcert=${other.root} has signed the certificate of localhost; name the file with the one that has`
          )
        }
        assert.include(
          yield* refusal(urlWith(server, { sslrootcert: "system" })),
          "sslmode=verify-full: no authority in sslrootcert=system has signed the certificate of localhost"
        )
        for (const sslmode of ["prefer", "require"]) assert.isTrue(yield* isEncrypted(urlWith(server, { sslmode })))
      })
  )

  it.effect("a root certificate that can't be read, and a client's without a key, are named", () =>
    Effect.gen(function* () {
      const { server } = yield* World
      assert.include(
        yield* refusal(urlWith(server, { sslmode: "verify-full", sslrootcert: "/nowhere.crt" })),
        "DATABASE_URL: can't connect: sslrootcert: can't read /nowhere.crt (ENOENT)"
      )
      assert.include(
        yield* refusal(urlWith(server, { sslmode: "require", sslcert: "/a.crt" })),
        "sslcert and sslkey belong together: set both"
      )
    })
  )

  it.effect("a role that needs the client's certificate gets in with one of its name, and each refusal says why", () =>
    Effect.gen(function* () {
      const { other, ours, server } = yield* World
      const careful = { user: "careful" }
      const by = ({ certificate, key }: Certificate) => ({ sslmode: "require", sslcert: certificate, sslkey: key })
      const [right, wrongName, unknown, expired] = yield* Effect.promise(() =>
        Promise.all([
          ours.sign("careful"),
          ours.sign("careless"),
          other.sign("careful"),
          ours.sign("careful", { days: -1 })
        ])
      )
      assert.isTrue(yield* isEncrypted(urlWith(server, by(right), careful)))
      assert.match(
        yield* refusal(urlWith(server, { sslmode: "require" }, careful)),
        /connection requires a valid client certificate; name it with sslcert and sslkey$/
      )
      assert.match(yield* refusal(urlWith(server, by(wrongName), careful)), /authentication failed for user "careful"$/)
      for (const refused of [unknown, expired]) {
        assert.include(
          yield* refusal(urlWith(server, by(refused), careful)),
          `sslmode=require: localhost does not accept the certificate sslcert=${refused.certificate}`
        )
      }
      assert.include(
        yield* refusal(urlWith(server, { ...by(right), sslkey: wrongName.key }, careful)),
        "sslcert or sslkey: "
      )
    })
  )

  it.effect("BEGIN is in one packet with the statement after it, over TLS too, and a large answer arrives whole", () =>
    Effect.gen(function* () {
      const { ours, server } = yield* World
      const { connection, packets } = yield* packetsOf(
        urlWith(server, { sslmode: "verify-full", sslrootcert: ours.root })
      )
      const begin = connection.query(beginStatement, [], false)
      const transaction = Effect.all([begin, connection.query("SELECT 1 AS one"), connection.query("COMMIT")])
      for (let turn = 0; turn < 3; turn++) {
        const written = yield* packets(transaction)
        assert.strictEqual(written.length, 2)
        assert.include(written[0], "BEGIN")
        const [begun, selected, ended] = yield* transaction
        assert.deepStrictEqual([begun.command, selected.rows, ended.command], ["BEGIN", [{ one: 1 }], "COMMIT"])
      }
      // Many TLS records, and more than the stream buffers.
      const { rows } = yield* connection.query("SELECT n, repeat('x', 1000) AS text FROM generate_series(1, 5000) AS n")
      assert.strictEqual(rows.length, 5_000)
      const large = "y".repeat(3_000_000)
      const { rows: back } = yield* connection.query("SELECT length($1::text) AS length", [large])
      assert.deepStrictEqual(back, [{ length: large.length }])
    }).pipe(Effect.scoped)
  )

  it.effect("every connection is encrypted: the pool, the one for migrations, and the control connection", () =>
    Effect.gen(function* () {
      const { ours, server } = yield* World
      const settings = DatabaseSettings.layerOf({
        url: urlWith(server, { sslmode: "verify-full", sslrootcert: ours.root }),
        sockets: Sockets.over(() => {}),
        applicationName: "every"
      })
      yield* Effect.gen(function* () {
        const control = yield* ControlConnection
        yield* SubscriptionRef.changes(control.session).pipe(
          Stream.filter((session) => session !== undefined),
          Stream.runHead
        )
        const sql = yield* PgClient.PgClient
        const rows = yield* sql`
          SELECT DISTINCT regexp_replace(application_name, ' control .+', ' control') AS name, ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
          WHERE application_name LIKE 'every%' ORDER BY 1`
        assert.deepStrictEqual(rows, [
          { name: "every", ssl: true },
          { name: "every control", ssl: true }
        ])
        const [{ clear } = { clear: -1 }] = yield* sql<{ readonly clear: number }>`
          SELECT count(*)::int4 AS clear FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
          WHERE application_name LIKE 'every%' AND NOT ssl`
        assert.strictEqual(clear, 0)
      }).pipe(
        Effect.scoped,
        Effect.provide(
          ControlConnection.layer.pipe(
            Layer.provideMerge(Layer.merge(Fibers.layer, Ids.layer)),
            Layer.provideMerge(Layer.provide(Migrated.layer([mechanism]), Database.layerPatient)),
            Layer.provideMerge(Database.layerChecked),
            Layer.provide(settings)
          ),
          { local: true }
        )
      )
    })
  )

  it.effect("an expired certificate is refused where it is verified", () =>
    Effect.gen(function* () {
      const { good, ours, serve, server } = yield* World
      yield* serve(yield* Effect.promise(() => ours.sign("localhost", { days: -1 })))
      assert.match(
        yield* refusal(urlWith(server, { sslmode: "verify-full", sslrootcert: ours.root })),
        /sslmode=verify-full: the certificate of localhost, or of its authority in sslrootcert, has expired; renew it$/
      )
      assert.isTrue(yield* isEncrypted(urlWith(server, { sslmode: "require" })))
      yield* serve(good)
    })
  )

  it.effect("without TLS at the server, require is refused in one sentence and prefer connects in clear text", () =>
    Effect.gen(function* () {
      const { good, ours, serve, server } = yield* World
      yield* serve(undefined)
      for (const parameters of [{ sslmode: "require" }, { sslmode: "verify-full", sslrootcert: ours.root }]) {
        assert.strictEqual(
          yield* refusal(urlWith(server, parameters)),
          `DATABASE_URL: can't connect: sslmode=${parameters.sslmode}: the server at localhost offers no TLS; turn ssl on there, or set sslmode=prefer`
        )
      }
      assert.isFalse(yield* isEncrypted(urlWith(server, {})))
      assert.isFalse(yield* isEncrypted(urlWith(server, { sslmode: "prefer" })))
      yield* serve(good)
      assert.isTrue(yield* isEncrypted(urlWith(server, {})))
      assert.isFalse(yield* isEncrypted(urlWith(server, { sslmode: "disable" })))
    })
  )

  it.effect(
    "a connection in clear text that leaves the machine is a warning, once a start, and one over loopback or TLS is none",
    () =>
      Effect.gen(function* () {
        const { server } = yield* World
        const host = Object.values(Os.networkInterfaces())
          .flatMap((addresses) => addresses ?? [])
          .find(({ family, internal }) => family === "IPv4" && !internal)?.address
        assert.isDefined(host, "this machine has an address beside loopback")
        const clear = yield* connect(urlWith(server, { sslmode: "disable" }, { host: host }))
        assert.deepStrictEqual(clear.warnings, [
          `the connection to Postgres at ${host} is not encrypted, and it leaves this machine: set sslmode=verify-full and sslrootcert in its URL`
        ])
        assert.deepStrictEqual((yield* connect(urlWith(server, {}, { host: host }))).warnings, [])
        assert.deepStrictEqual((yield* connect(urlWith(server, { sslmode: "disable" }))).warnings, [])
      })
  )
})
