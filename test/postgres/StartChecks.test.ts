/** Databases that the service refuses to run on, or warns of. */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Sockets from "../../src/postgres/tls/Sockets.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as EmbeddedPostgres from "../../src/postgres/embedded/EmbeddedPostgres.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TransactionPooler from "../support/TransactionPooler.ts"

/** The URL with the host and port of a proxy. */
const by = (url: Redacted.Redacted, { host, port }: { readonly host: string; readonly port: number }) => {
  const changed = new URL(Redacted.value(url))
  changed.hostname = host
  changed.port = String(port)
  return Redacted.make(changed.toString())
}

const addressOf = (url: Redacted.Redacted) => {
  const { hostname, port } = new URL(Redacted.value(url))
  return { host: hostname, port: Number(port) }
}

/** The URL with sessions whose commits do not wait for standbys. */
const localOf = (url: Redacted.Redacted) => {
  const changed = new URL(Redacted.value(url))
  changed.searchParams.set("options", "-c synchronous_commit=local")
  return Redacted.make(changed.toString())
}

/** Builds the checked pool, and returns its log lines. */
const start = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const lines: Array<string> = []
  const logger = Logger.make(({ message }) => void lines.push(String(message)))
  yield* Layer.build(
    Layer.fresh(Database.layerChecked).pipe(
      // The embedded server's URL has a parameter that other sockets refuse.
      Layer.provide(DatabaseSettings.layerOf({ url, sockets: Sockets.over(() => {}) })),
      Layer.provide(Logger.layer([logger]))
    )
  )
  return lines
})

/** Sets a parameter for the test's own database, as an operator would. */
const alter = (setting: string) =>
  Effect.gen(function* () {
    const { name } = yield* TestDatabase
    const sql = yield* PgClient.PgClient
    yield* sql.unsafe(`ALTER DATABASE ${name} SET ${setting}`)
  })

it.live("synchronous_commit = off refuses the start, wherever it was set", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    yield* alter("synchronous_commit = off")
    const error = yield* Effect.flip(start(url))
    assert.match(error.message, /^DATABASE_URL: synchronous_commit is off, so what was answered as done could be lost/)
    // Without standbys, local is as durable as on.
    for (const value of ["local", "on", "remote_apply"]) {
      yield* alter(`synchronous_commit = ${value}`)
      yield* start(url)
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("synchronous_commit = local refuses the start where synchronous standbys exist", () =>
  Effect.gen(function* () {
    // On a server of its own, because standbys are a setting of the server, and other tests' commits would wait for ever.
    const { superuserUrl: url } = yield* EmbeddedPostgres.acquireTemporary({
      fsync: "off",
      synchronous_standby_names: "elsewhere",
      synchronous_commit: "local"
    })
    const error = yield* Effect.flip(start(url))
    assert.match(
      error.message,
      /^DATABASE_URL: synchronous_commit is local, and there are synchronous standbys \(elsewhere\): .* set it to on$/
    )
    // The start writes nothing, so it waits for no standby.
    for (const value of ["on", "remote_write", "remote_apply"]) {
      yield* Effect.flatMap(PgClient.PgClient, (sql) =>
        sql.unsafe(`ALTER DATABASE paid_once SET synchronous_commit = ${value}`)
      ).pipe(Effect.provide(PgClient.layer({ url: localOf(url), maxConnections: 1 }), { local: true }))
      yield* start(url)
    }
  }).pipe(Effect.scoped)
)

it.live("a warning names fsync and full_page_writes where they are off", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const sql = yield* PgClient.PgClient
    const lines = yield* start(url)
    for (const name of ["fsync", "full_page_writes"]) {
      const [row] = yield* sql<{ readonly value: string }>`SELECT current_setting(${name}) AS value`
      assert.strictEqual(
        lines.some((line) => line.startsWith(`${name} is off`)),
        row!.value === "off",
        name
      )
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("a pooler in transaction mode refuses the start, and a plain TCP proxy does not", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const proxy = yield* TcpProxy.make({ upstream: addressOf(url) })
    yield* start(by(url, proxy))

    const pooled = by(url, yield* TransactionPooler.make(addressOf(url)))
    const error = yield* Effect.flip(start(pooled))
    assert.match(
      error.message,
      /^DATABASE_URL: there is a pooler in transaction mode .* or through a pooler in session mode$/
    )

    // The test's pooler behaves like one: transactions work, and session settings do not stay.
    const [one, other] = [yield* PgConnection.make({ url: pooled }), yield* PgConnection.make({ url: pooled })]
    yield* one.query("SELECT set_config('test.mine', 'one', false)", [], false)
    yield* other.query("BEGIN", [], false)
    const { rows } = yield* other.query("SELECT current_setting('test.mine', true) AS mine", [], false)
    assert.deepStrictEqual(rows, [{ mine: "one" }])
    yield* other.query("ROLLBACK", [], false)
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)
