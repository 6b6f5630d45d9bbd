/** Starts a server with the roles as they should be: what somebody did to a role of ours does not outlast the start. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { innermost } from "../../platform/Innermost.ts"
import type { Host } from "./Account.ts"
import type { Settings } from "./Data.ts"
import { fail } from "./Process.ts"
import * as Roles from "./Roles.ts"
import { start } from "./Server.ts"
import { socketDirectory } from "./Socket.ts"

const lockLimitSeconds = 10 // the statements take milliseconds; a session that has changed a role and not committed would hold them up

/**
 * Starts the server or joins a running one, and sets the passwords and attributes of its roles again. Returns whether it joined. Under the
 * directory's lock.
 */
export const startRenewed = Effect.fn("EmbeddedPostgres.startRenewed")(function* (
  home: string,
  host: Host,
  secret: string,
  settings: Settings
) {
  const joined = yield* start(home, host, settings)
  const url = Roles.urlOf(yield* socketDirectory(home, host), settings.port, secret, Roles.databaseName)
  // Somebody may have made the database read-only by default, and doctor, which says so, needs the server. A statement with a password must not get
  // into the log.
  const guards = [
    "SET TRANSACTION READ WRITE",
    "SET LOCAL log_min_error_statement = panic",
    `SET LOCAL lock_timeout = '${lockLimitSeconds}s'`
  ]
  yield* SqlClient.SqlClient.use((sql) =>
    sql.withTransaction(
      Effect.forEach([...guards, ...Roles.renewal(secret)], (statement) => sql.unsafe(statement), { discard: true })
    )
  ).pipe(
    Effect.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })),
    Effect.mapError((error) =>
      fail("StartFailed", `the roles of Postgres in ${host.base} can't be renewed: ${innermost(error)}`, error)
    )
  )
  return joined
})
