/** Pools that are reserved for one kind of work: the dispatcher, the consumers, the workers. */
import { Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import * as Database from "./Database.ts"

/**
 * A pool beside that of Database.ts, for work that must go on while requests queue for their connections. In the same queue an event would
 * wait as long as three transactions do, and longest under load. Connections are opened when they are needed.
 */
export const layer = (
  purpose: string,
  maxConnections: number,
  startupParameters: Readonly<Record<string, string>> = {}
): Layer.Layer<Database.Pool, SqlError.SqlError, DatabaseSettings> =>
  Layer.fresh(Database.layer).pipe(
    Layer.provide(
      Layer.effect(
        DatabaseSettings,
        DatabaseSettings.useSync((settings) => ({
          ...settings,
          maxConnections,
          startupParameters,
          applicationName: `${settings.applicationName} ${purpose}`
        }))
      )
    )
  )

/**
 * Startup parameters for connections that lock rows for which other processes wait.
 *
 * - A process that freezes inside a transaction loses its row locks after `frozenMillis`.
 * - A statement that waits for a lock fails before its pool gives the connection up. Otherwise Postgres would go on waiting for a client
 *   that is gone, once more with each retry.
 */
export const lockBounds = (frozenMillis: number): Effect.Effect<Readonly<Record<string, string>>> =>
  Database.PoolSettings.useSync(({ silenceMillis }) => ({
    idle_in_transaction_session_timeout: String(Math.min(frozenMillis, Database.longestIdleTransactionMillis)),
    lock_timeout: String(Math.ceil((silenceMillis * 2) / 3))
  }))
