/**
 * The connection pool of the service. ReservedPool.ts makes others beside it.
 *
 * Column names are not rewritten: SQL says snake_case, and a statement aliases the columns that it returns.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Redacted } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import * as Net from "node:net"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import { innermost } from "../platform/Innermost.ts"
import * as TransactionControl from "../platform/TransactionControl.ts"
import { DatabaseUnusable } from "./StartChecks.ts"
import * as StartChecks from "./StartChecks.ts"

/**
 * How long a connection of the pool may be silent, idle or waiting for a response. Statements take milliseconds, so a longer silence
 * means a dead host or a cut network. TCP keepalive would not tell, because none is sent while data is unacknowledged.
 */
export const PoolSettings = Context.Reference<{ readonly silenceMillis: number }>("paid-once/postgres/PoolSettings", {
  defaultValue: () => ({ silenceMillis: 15_000 })
})

/** The pool's connections, for its metrics. */
export class PoolStats extends Context.Service<
  PoolStats,
  {
    /** Open connections; 0 behind a Unix socket, whose connections the driver opens itself. */
    readonly open: () => number
    readonly max: number
  }
>()("paid-once/postgres/PoolStats") {}

/**
 * A change to each socket of a pool, made after the call to connect. None by default; `fast/DeferredBegin.ts` saves a round trip of every
 * transaction here.
 */
export const SocketSetup = Context.Reference<(socket: Net.Socket) => void>("paid-once/postgres/SocketSetup", {
  defaultValue: () => () => {}
})

/** Opens sockets that destroy themselves after `silenceMillis` without data. `undefined` for a URL without a host. */
const boundedSocket = (
  url: Redacted.Redacted,
  silenceMillis: number,
  sockets: Set<Net.Socket>,
  setUp: (socket: Net.Socket) => void
) => {
  const { hostname, port } = new URL(Redacted.value(url))
  if (hostname === "") return undefined
  const host = hostname.replace(/^\[|\]$/g, "")
  return () => {
    const socket = Net.connect({ host, port: Number(port === "" ? 5432 : port), noDelay: true })
    setUp(socket)
    socket.once("connect", () => sockets.add(socket))
    socket.once("close", () => sockets.delete(socket))
    socket.setTimeout(silenceMillis, () => {
      socket.destroy(new Error(`Postgres was silent for ${silenceMillis} ms`))
    })
    return socket
  }
}

/** A pool, as layers provide it. */
export type Pool = PgClient.PgClient | SqlClient.SqlClient | PoolStats

/** Transactions last milliseconds. After this idle time a transaction has lost its client, and holds back vacuum. */
export const longestIdleTransactionMillis = 60_000

const clientLayer = (bounded: boolean) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const { applicationName, maxConnections, startupParameters, url } = yield* DatabaseSettings
      const { silenceMillis } = yield* PoolSettings
      const setUp = yield* SocketSetup
      const max = bounded ? maxConnections : 1
      const sockets = new Set<Net.Socket>()
      return Layer.merge(
        Layer.succeed(PoolStats, { open: () => sockets.size, max }),
        PgClient.layer({
          url,
          applicationName,
          maxConnections: max,
          ...(bounded ? { stream: boundedSocket(url, silenceMillis, sockets, setUp) } : {}),
          startupParameters: {
            idle_in_transaction_session_timeout: String(longestIdleTransactionMillis),
            // A statement after a row lock must see what other transactions committed before, whatever the default of the database or role.
            default_transaction_isolation: "read committed",
            ...startupParameters
          }
        }).pipe(
          Layer.tap((context) => Effect.sync(() => TransactionControl.install(Context.get(context, PgClient.PgClient))))
        )
      )
    })
  )

/** Provides `PgClient` and `SqlClient` over one pool, made from {@link DatabaseSettings}. */
export const layer: Layer.Layer<Pool, SqlError.SqlError, DatabaseSettings> = clientLayer(true)

/** A single connection without a limit on silence, for migrations, which may build an index on a large table. */
export const layerPatient: Layer.Layer<Pool, SqlError.SqlError, DatabaseSettings> = clientLayer(false)

/** The error with advice, where a pooler refuses the startup parameters. Its own words do not name the pooler. */
const hint = (message: string): string =>
  /unsupported startup parameter/i.test(message)
    ? `${message}: that is a pooler; add it to its ignore_startup_parameters, in session mode, or connect to Postgres itself`
    : message

/** {@link layer}, after the checks of StartChecks.ts. It fails with a sentence for the operator where a guarantee would break. */
export const layerChecked: Layer.Layer<Pool, DatabaseUnusable, DatabaseSettings> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { applicationName, url } = yield* DatabaseSettings
    yield* StartChecks.ownSessions({ url, applicationName: `${applicationName} start` })
    yield* StartChecks.settings
  })
).pipe(
  Layer.provideMerge(layer),
  Layer.catch((error) =>
    Layer.effectContext(
      Effect.fail(
        error._tag === "DatabaseUnusable"
          ? error
          : new DatabaseUnusable({ reason: `can't connect: ${hint(innermost(error))}` })
      )
    )
  )
)
