/**
 * The connection pool that business transactions and reads go through.
 *
 * Names are sent as written: columns are snake_case in SQL and aliased where a row is read, so no result is rewritten behind
 * the reader's back.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Duration, Layer, Redacted } from "effect"
import type { SqlClient, SqlError } from "effect/sql"

/** Where the database is and how many connections this process may hold. */
export class DatabaseSettings extends Context.Service<
  DatabaseSettings,
  {
    readonly url: Redacted.Redacted<string>
    /** Connections of the pool; the control connection comes on top. */
    readonly maxConnections: number
    /** Shown in `pg_stat_activity`, so that an operator sees whose session holds a lock. */
    readonly applicationName: string
  }
>()("paid-once/platform/database/DatabaseSettings") {
  static readonly layerOf = (settings: {
    readonly url: Redacted.Redacted<string>
    readonly maxConnections?: number
    readonly applicationName?: string
  }): Layer.Layer<DatabaseSettings> =>
    Layer.succeed(DatabaseSettings, {
      url: settings.url,
      // Eight lanes side by side, as many consumer partitions, and some requests: beyond that two cores only queue.
      maxConnections: settings.maxConnections ?? 16,
      applicationName: settings.applicationName ?? "paid-once"
    })
}

/** Notices a peer that vanished without a word (a pulled cable, a dead host) well before TCP would. */
const keepAlive = Duration.seconds(10)

/** Provides `PgClient` and `SqlClient` over one pool, made from {@link DatabaseSettings}. */
export const layer: Layer.Layer<PgClient.PgClient | SqlClient.SqlClient, SqlError.SqlError, DatabaseSettings> = Layer.unwrap(
  DatabaseSettings.useSync(({ applicationName, maxConnections, url }) =>
    PgClient.layer({
      url,
      applicationName,
      maxConnections,
      keepAlive,
      startupParameters: {
        // A writer that was told "committed" must find its event after a crash. Never weakened for business transactions.
        synchronous_commit: "on",
        // A transaction of ours lasts milliseconds. One that sits idle longer lost its client, and would hold back vacuum.
        idle_in_transaction_session_timeout: "60000"
      }
    })
  )
)
