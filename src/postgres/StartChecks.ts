/**
 * Whether a database keeps what the service answers as done, looked at on the connections that business transactions use, and
 * whether a session there is one: refused, with a sentence for the operator, where it breaks a guarantee; warned of where it weakens one.
 */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { Effect, type Redacted, Schema } from "effect"

/** The database can't be used as it is: unreachable, too old, set so that a commit may be lost, or behind a pooler that lends sessions. */
export class DatabaseUnusable extends Schema.TaggedError<DatabaseUnusable>()("DatabaseUnusable", {
  reason: Schema.String
}) {
  override get message() {
    return `DATABASE_URL: ${this.reason}`
  }
}

/** Partitioned tables with the foreign keys, and the session timeouts that we rely on, are all there from 15 on. */
const oldestVersion = 15

/** Fails with what breaks a guarantee, logs what weakens one. */
export const settings = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const [row] = yield* sql<{
    readonly version: number
    readonly fsync: string
    readonly fullPageWrites: string
    readonly sync: string
    readonly standbys: string
  }>`
    SELECT current_setting('server_version_num')::int4 / 10000 AS version,
           current_setting('fsync') AS fsync, current_setting('full_page_writes') AS "fullPageWrites",
           -- Of this session, whatever the server, the database, the role or the URL set it to.
           current_setting('synchronous_commit') AS sync, current_setting('synchronous_standby_names') AS standbys`
  if (row === undefined) return
  if (row.version < oldestVersion) {
    return yield* new DatabaseUnusable({
      reason: `Postgres ${row.version} is too old: ${oldestVersion} or newer is needed`
    })
  }
  if (row.sync === "off") {
    return yield* new DatabaseUnusable({
      reason:
        "synchronous_commit is off, so what was answered as done could be lost in a crash; " +
        "set it to on for the server, the database and the role (ALTER ROLE … SET synchronous_commit = on)"
    })
  }
  // Where there is no standby to wait for, local is the same as on.
  if (row.sync === "local" && row.standbys !== "") {
    return yield* new DatabaseUnusable({
      reason:
        `synchronous_commit is local, and there are synchronous standbys (${row.standbys}): ` +
        "what was answered as done could be lost when one of them takes over; set it to on"
    })
  }
  if (row.fsync === "off") {
    yield* Effect.logWarning("fsync is off in this Postgres: a power cut can lose what was committed. For tests only.")
  }
  if (row.fullPageWrites === "off") {
    yield* Effect.logWarning(
      "full_page_writes is off in this Postgres: a power cut can leave torn pages. For tests only."
    )
  }
})

/** Longer than a connect takes over any line worth using. */
const connectTimeout = "5 seconds"

/**
 * Fails where connections are lent a session for a transaction only, as by PgBouncer in transaction mode: locks, LISTEN and settings of
 * a session would belong to whoever comes next.
 *
 * Such a pooler must give one connection another backend while the one that it had is in use by somebody's transaction, and a session of
 * one's own always has the same.
 */
export const ownSessions = (options: { readonly url: Redacted.Redacted; readonly applicationName: string }) =>
  Effect.scoped(
    Effect.gen(function* () {
      const connect = PgConnection.make({ ...options, connectTimeout })
      const one = yield* connect
      const other = yield* connect
      // Unprepared, for a prepared statement may not be there any more behind a pooler.
      const backend = (connection: PgConnection.PgConnection) =>
        Effect.map(
          connection.query("SELECT pg_backend_pid() AS pid", [], false),
          ({ rows: [row] }) => row?.["pid"] as number
        )
      for (const [resting, busy] of [
        [one, other],
        [other, one]
      ] as const) {
        const before = yield* backend(resting)
        yield* busy.query("BEGIN", [], false)
        const inside = yield* backend(busy)
        const after = yield* backend(resting)
        yield* busy.query("COMMIT", [], false)
        if (inside === before || after !== before) {
          return yield* new DatabaseUnusable({
            reason:
              "there is a pooler in transaction mode between us and Postgres, where session locks and LISTEN mean nothing; " +
              "connect to Postgres itself, or through a pooler in session mode"
          })
        }
      }
    })
  )
