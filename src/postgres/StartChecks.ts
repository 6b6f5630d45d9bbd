/**
 * Checks of the database at the start: whether commits are durable, and whether a connection keeps its session. A setting that breaks a
 * guarantee refuses the start, and one that weakens it is logged. Both are sentences for the operator.
 */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import type { ConnectionOptions } from "../platform/DatabaseSettings.ts"
import * as Rows from "../platform/Rows.ts"

/** The database can't be used: unreachable, too old, may lose commits, or behind a pooler in transaction mode. */
export class DatabaseUnusable extends Schema.TaggedError<DatabaseUnusable>()("DatabaseUnusable", {
  reason: Schema.String,
  /** The variable with the URL, where it is not DATABASE_URL. */
  variable: Schema.optional(Schema.String)
}) {
  override get message() {
    return `${this.variable ?? "DATABASE_URL"}: ${this.reason}`
  }
}

/** From 15 on Postgres has the partitioning with foreign keys, and the session timeouts, that the service needs. */
const oldestVersion = 15

const settingsRow = Rows.one(
  Schema.Struct({
    version: Schema.Int,
    fsync: Schema.String,
    pageWrites: Schema.String,
    sync: Schema.String,
    standbys: Schema.String,
    replication: Schema.String
  })
)

/** A setting of Postgres, with the value that it needs. */
export interface Setting {
  readonly name: string
  readonly value: string
}

/** The faults of version and durability, and of triggers that do not fire, as a connection of the pool sees them. Each breaks a guarantee (it `refuses` the start), or weakens one. */
export const settingFindings = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const row = yield* settingsRow(sql`
    SELECT current_setting('server_version_num')::int4 / 10000 AS version,
           current_setting('fsync') AS fsync, current_setting('full_page_writes') AS "pageWrites",
           -- The value of this session, which the server, the database, the role or the URL may have set.
           current_setting('synchronous_commit') AS sync, current_setting('synchronous_standby_names') AS standbys,
           current_setting('session_replication_role') AS replication`)
  const refuses = (sentence: string, setting?: Setting) => ({ refuses: true, sentence, setting })
  const warns = (name: string, what: string) => ({
    refuses: false,
    sentence: `${name} is off in this Postgres: ${what}; that is for tests only`,
    setting: { name, value: "on" }
  })
  const sync = { name: "synchronous_commit", value: "on" }
  return [
    ...(row.version < oldestVersion ? [refuses(tooOld(row.version))] : []),
    ...(row.sync === "off" ? [refuses(lossy, sync)] : []),
    // Without synchronous standbys, local means the same as on.
    ...(row.sync === "local" && row.standbys !== "" ? [refuses(localOnly(row.standbys), sync)] : []),
    ...(row.replication === "origin"
      ? []
      : [refuses(unguarded(row.replication), { name: "session_replication_role", value: "origin" })]),
    ...(row.fsync === "off" ? [warns("fsync", "a power cut can lose what was committed")] : []),
    ...(row.pageWrites === "off" ? [warns("full_page_writes", "a power cut can leave torn pages")] : [])
  ]
})

const tooOld = (version: number) => `Postgres ${version} is too old: ${oldestVersion} or newer is needed`
const lossy =
  "synchronous_commit is off, so what was answered as done could be lost in a crash; " +
  "set it to on for the server, the database and the role (ALTER ROLE … SET synchronous_commit = on)"
const localOnly = (standbys: string) =>
  `synchronous_commit is local, and there are synchronous standbys (${standbys}): ` +
  "what was answered as done could be lost when one of them takes over; set it to on"
const unguarded = (role: string) =>
  `session_replication_role is ${role}, so no foreign key holds and no trigger fires; set it to origin for the database and the role`

/** Fails with the first of {@link settingFindings} that refuses the start, and logs the others as warnings. */
export const settings = Effect.gen(function* () {
  for (const { refuses, sentence } of yield* settingFindings) {
    if (refuses) return yield* new DatabaseUnusable({ reason: sentence })
    yield* Effect.logWarning(sentence)
  }
})

/** Far above the time of a connection over a usable network. */
const connectTimeout = "5 seconds"

/**
 * Fails where a pooler assigns sessions per transaction, as PgBouncer does in transaction mode. Session locks, LISTEN and session settings
 * would then leak to other clients.
 *
 * The check takes a connection's backend into the transaction of another connection. A pooler must then serve the first connection by
 * another backend, while a session of its own always has the same one.
 */
export const ownSessions = (options: ConnectionOptions & { readonly applicationName: string }) =>
  Effect.scoped(
    Effect.gen(function* () {
      const connect = PgConnection.make({ ...options, connectTimeout })
      const one = yield* connect
      const other = yield* connect
      // Unprepared: behind a pooler, the next statement may reach a backend without the prepared one.
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
