/** A Postgres behind a Unix socket: the same limits, counts and BEGIN in one packet as over TCP. */
import { PgConnection } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as Net from "node:net"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import { beginStatement } from "../../src/platform/TransactionControl.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as DeferredBegin from "../../src/postgres/fast/DeferredBegin.ts"
import * as Sockets from "../../src/postgres/tls/Sockets.ts"
import { packetsOf } from "../support/Packets.ts"
import * as OwnPostgres from "../support/OwnPostgres.ts"

const sockets = Sockets.over(() => {})

/** The ways to name the socket's directory in a URL. */
const urlsOf = ({ port, socketDirectory }: OwnPostgres.Server) =>
  [
    `postgres://postgres@localhost/postgres?host=${socketDirectory}&port=${port}`,
    `postgres://postgres@${encodeURIComponent(socketDirectory)}:${port}/postgres`,
    `postgres:///postgres?host=${socketDirectory}&port=${port}&user=postgres`
  ].map((url) => Redacted.make(url))

it.live("a pool over a Unix socket is checked, counted, and sends BEGIN with the statement after it", () =>
  Effect.gen(function* () {
    // Nobody listens on TCP: a connection can only be one of the socket.
    const server = yield* OwnPostgres.acquire({ settings: { listen_addresses: "" } })
    for (const url of urlsOf(server)) {
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { open } = yield* Database.PoolStats
        const rows = yield* sql.withTransaction(sql`SELECT inet_client_addr() IS NULL AS "isUnix"`)
        assert.deepStrictEqual(rows, [{ isUnix: true }])
        assert.isAbove(open(), 0)
      }).pipe(
        Effect.provide(
          Layer.fresh(Database.layerChecked).pipe(
            Layer.provide(Layer.succeed(Database.SocketSetup, DeferredBegin.install)),
            Layer.provide(DatabaseSettings.layerOf({ url, sockets }))
          ),
          { local: true }
        )
      )
    }
    const { connection, packets } = yield* packetsOf(urlsOf(server)[0]!)
    const begin = connection.query(beginStatement, [], false)
    yield* connection.query("SELECT 1 AS one")
    yield* connection.query("COMMIT")
    const written = yield* packets(Effect.all([begin, connection.query("SELECT 1 AS one"), connection.query("COMMIT")]))
    assert.strictEqual(written.length, 2)
    assert.include(written[0], "BEGIN")
  }).pipe(Effect.scoped)
)

it.live("a connection over a Unix socket to a server that answers nothing ends after the limit on silence", () =>
  Effect.gen(function* () {
    const server = yield* OwnPostgres.acquire()
    // In front of a server that never answers: it takes the connection, and reads.
    const path = `${server.socketDirectory}/.s.PGSQL.1`
    yield* Effect.acquireRelease(
      Effect.callback<Net.Server>((resume) => {
        const silent = Net.createServer((socket) => socket.resume().on("error", () => {}))
        silent.listen(path, () => resume(Effect.succeed(silent)))
      }),
      (silent) => Effect.promise(() => new Promise((resolve) => silent.close(resolve)))
    )
    for (const url of urlsOf({ ...server, port: 1 })) {
      for (const settings of [{ url, sockets }, { url }]) {
        const error = yield* Effect.flip(
          SqlClient.SqlClient.use((sql) => sql`SELECT 1`).pipe(
            Effect.provide(Layer.fresh(Database.layer).pipe(Layer.provide(DatabaseSettings.layerOf(settings))), {
              local: true
            }),
            Effect.provideService(Database.PoolSettings, { silenceMillis: 200 })
          )
        )
        assert.match(String((error.reason as { readonly cause?: unknown }).cause), /Postgres was silent for 200 ms/)
      }
    }
  }).pipe(Effect.scoped)
)

it.effect("the sockets of the lifted package refuse a parameter that they would ignore", () =>
  Effect.gen(function* () {
    for (const parameter of [
      "require_auth=scram-sha-256",
      "require_auth=none",
      "sslrootcert=system",
      "sslkey=/key",
      "ssl=true"
    ]) {
      const url = Redacted.make(`postgres://ada:s3cret@db.example/shop?sslmode=require&${parameter}`)
      const plain = yield* Effect.map(DatabaseSettings, (settings) => settings.sockets).pipe(
        Effect.provide(DatabaseSettings.layerOf({ url }))
      )
      assert.throws(() => plain(url), `${parameter.split("=")[0]} in the database's URL would be ignored`)
    }
  })
)

it.live("a socket that nobody listens on, and a URL that is wrong, fail the connection with a sentence", () =>
  Effect.gen(function* () {
    const causeOf = (url: string) =>
      Effect.map(Effect.flip(PgConnection.make(sockets(Redacted.make(url)))), ({ reason }) =>
        String((reason as { readonly cause?: unknown }).cause)
      )
    assert.match(yield* causeOf("postgres://u@localhost/d?host=/nowhere"), /connect ENOENT \/nowhere\/\.s\.PGSQL\.5432/)
    assert.match(yield* causeOf("postgres://u@localhost/d?ssl=true"), /ssl is no parameter of libpq: set sslmode=/)
  }).pipe(Effect.scoped)
)
