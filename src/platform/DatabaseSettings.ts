/** The address of the database, for the pool and for the control connection. */
import { Context, Layer, type Redacted } from "effect"

/** The address of the database, and the number of connections that this process may hold. */
export class DatabaseSettings extends Context.Service<
  DatabaseSettings,
  {
    readonly url: Redacted.Redacted
    /** Connections of the pool; the control connection comes on top. */
    readonly maxConnections: number
    /** Shown in `pg_stat_activity`, so that an operator sees whose session holds a lock. */
    readonly applicationName: string
    /** Settings of Postgres for the sessions of this pool. */
    readonly startupParameters: Readonly<Record<string, string>>
  }
>()("paid-once/platform/DatabaseSettings") {
  static readonly layerOf = (settings: {
    readonly url: Redacted.Redacted
    readonly maxConnections?: number
    readonly applicationName?: string
  }): Layer.Layer<DatabaseSettings> =>
    Layer.succeed(DatabaseSettings, {
      url: settings.url,
      // Eight lanes side by side, as many consumer partitions, and some requests: beyond that two cores only queue.
      maxConnections: settings.maxConnections ?? 16,
      applicationName: settings.applicationName ?? "paid-once",
      startupParameters: {}
    })
}
