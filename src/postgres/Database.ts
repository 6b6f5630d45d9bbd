/**
 * The connection pool that business transactions and reads go through.
 *
 * Names are sent as written: columns are snake_case in SQL and aliased where a row is read, so no result is rewritten behind
 * the reader's back.
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
 * How long a connection of the pool may be silent while an answer is awaited, or idle. A statement of ours takes milliseconds; what
 * has not answered by then hangs behind a dead host or a cut network, and no TCP keepalive tells: none is sent while data is
 * unacknowledged.
 */
export const PoolSettings = Context.Reference<{ readonly silenceMillis: number }>("paid-once/postgres/PoolSettings", {
  defaultValue: () => ({ silenceMillis: 15_000 })
})

/** The pool's connections, for its metrics. */
export class PoolStats extends Context.Service<
  PoolStats,
  {
    /** Connections that are open now; 0 for a database behind a Unix socket, whose connections are not ours to open. */
    readonly open: () => number
    readonly max: number
  }
>()("paid-once/postgres/PoolStats") {}

/**
 * What is done to each socket of a pool as it is told to connect. As a rule nothing; `fast/DeferredBegin.ts` saves a round trip of
 * every transaction here.
 */
export const SocketSetup = Context.Reference<(socket: Net.Socket) => void>("paid-once/postgres/SocketSetup", {
  defaultValue: () => () => {}
})

/** Opens sockets that end themselves when nothing has come for `silenceMillis`. `undefined` for a URL without a host. */
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

type Pool = PgClient.PgClient | SqlClient.SqlClient | PoolStats

/** A transaction of ours lasts milliseconds. One that sits idle for longer lost its client, and would hold back vacuum. */
const longestIdleTransactionMillis = 60_000

/**
 * What connections are to ask Postgres for whose rows others wait for. A process that freezes in the middle of a transaction loses the rows that it has
 * locked there after `frozenMillis`. And who waits for a row gives up before its pool gives up the connection, for Postgres goes on
 * waiting for a client that is gone, once more with each try.
 */
export const lockBounds = (frozenMillis: number): Effect.Effect<Readonly<Record<string, string>>> =>
  PoolSettings.useSync(({ silenceMillis }) => ({
    idle_in_transaction_session_timeout: String(Math.min(frozenMillis, longestIdleTransactionMillis)),
    lock_timeout: String(Math.ceil((silenceMillis * 2) / 3))
  }))

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
            // Who locks a row and then looks must see what others have committed since: whatever the database or the role has as its default.
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

/**
 * A pool beside {@link layer}'s, for work that must go on when requests queue for every connection of theirs: in one line with them an
 * event would wait as long as three transactions do, and just when there are most to send. Connections are opened when they are needed.
 */
export const layerReserved = (
  purpose: string,
  maxConnections: number,
  startupParameters: Readonly<Record<string, string>> = {}
): Layer.Layer<Pool, SqlError.SqlError, DatabaseSettings> =>
  Layer.fresh(clientLayer(true)).pipe(
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

/** One connection on which a statement may take its time: for migrations, which build indexes on tables of any size. */
export const layerPatient: Layer.Layer<Pool, SqlError.SqlError, DatabaseSettings> = clientLayer(false)

/** A pooler that passes no settings on says so while we connect, in words that tell an operator nothing. */
const hint = (message: string): string =>
  /unsupported startup parameter/i.test(message)
    ? `${message}: that is a pooler; add it to its ignore_startup_parameters, in session mode, or connect to Postgres itself`
    : message

/** {@link layer}, refused with a sentence for the operator where the database would break a guarantee. */
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
