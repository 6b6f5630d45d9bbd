/** The address of the database, for every pool and for the control connection, and how a socket to it is opened. */
import { Context, Layer, Redacted } from "effect"
import * as Net from "node:net"

/** The driver's options for a connection. */
export interface ConnectionOptions {
  readonly url: Redacted.Redacted
  readonly ssl?: boolean
  readonly stream?: () => Net.Socket
}

/** Opens the sockets to a URL. `setUp` gets each socket after the call to `connect`, and before the driver. */
export type Sockets = (url: Redacted.Redacted, setUp?: (socket: Net.Socket) => void) => ConnectionOptions

/**
 * TCP and Unix sockets, with what the driver knows of TLS: `sslmode` alone. `postgres/tls/Sockets.ts`, which takes its place in the service, has
 * all of libpq's modes and parameters. A parameter that would be ignored is refused.
 */
const plainSockets: Sockets = (url, setUp = () => {}) => {
  const { hostname, port, searchParams } = new URL(Redacted.value(url))
  const unheeded = [...searchParams.keys()].find(
    (name) => name === "require_auth" || (name.startsWith("ssl") && name !== "sslmode")
  )
  if (unheeded !== undefined)
    throw new Error(`${unheeded} in the database's URL would be ignored: use postgres/tls/Sockets.ts`)
  const stream = () => {
    const host = decodeURIComponent(searchParams.get("host") ?? hostname).replace(/^\[|\]$/g, "")
    const at = Number(searchParams.get("port") ?? (port === "" ? 5432 : port))
    const socket = host.startsWith("/")
      ? Net.connect(`${host}/.s.PGSQL.${at}`)
      : Net.connect({ host: host === "" ? "localhost" : host, port: at, noDelay: true })
    setUp(socket)
    return socket
  }
  return { url, stream }
}

/** The address of the database, and the number of connections that this process may hold. */
export class DatabaseSettings extends Context.Service<
  DatabaseSettings,
  {
    readonly url: Redacted.Redacted
    readonly sockets: Sockets
    /** Connections of the pool; the control connection and the one that listens come on top. */
    readonly maxConnections: number
    /** Shown in `pg_stat_activity`, so that an operator sees whose session holds a lock. */
    readonly applicationName: string
    /** Settings of Postgres for the sessions of this pool. */
    readonly startupParameters: Readonly<Record<string, string>>
  }
>()("paid-once/platform/DatabaseSettings") {
  static readonly layerOf = (settings: {
    readonly url: Redacted.Redacted
    readonly sockets?: Sockets
    readonly maxConnections?: number
    readonly applicationName?: string
  }): Layer.Layer<DatabaseSettings> =>
    Layer.succeed(DatabaseSettings, {
      url: settings.url,
      sockets: settings.sockets ?? plainSockets,
      // Eight lanes side by side, as many consumer partitions, and some requests: beyond that two cores only queue.
      maxConnections: settings.maxConnections ?? 16,
      applicationName: settings.applicationName ?? "paid-once",
      startupParameters: {}
    })
}
