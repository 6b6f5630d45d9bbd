/**
 * The connection pool of the service. ReservedPool.ts makes others beside it.
 *
 * Column names are not rewritten: SQL says snake_case, and a statement aliases the columns that it returns.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import type * as Net from "node:net"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import { innermost } from "../platform/Innermost.ts"
import * as TransactionControl from "../platform/TransactionControl.ts"
import { DatabaseUnusable } from "./StartChecks.ts"
import * as StartChecks from "./StartChecks.ts"

/**
 * How long a connection of the pool may be silent, idle or waiting for a response. Statements take milliseconds, so a longer silence
 * means a dead host or a cut network. TCP keepalive would not tell, because none is sent while data is unacknowledged.
 */
export const PoolSettings = Context.Reference<{
  readonly silenceMillis: number
  /** Statements share a connection: those of one moment share a packet, and each waits for the answers to those before it. */
  readonly isPipelined?: boolean
}>("paid-once/postgres/PoolSettings", { defaultValue: () => ({ silenceMillis: 15_000 }) })

/** The pool's connections, for its metrics. */
export class PoolStats extends Context.Service<
  PoolStats,
  {
    /** Open connections that went through `SocketSetup`. */
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

/** Counts a socket, and makes it destroy itself after `silenceMillis` without data. */
const bound = (socket: Net.Socket, silenceMillis: number, open: Set<Net.Socket>) => {
  socket.once("connect", () => open.add(socket))
  socket.once("close", () => open.delete(socket))
  socket.setTimeout(silenceMillis, () => {
    socket.destroy(new Error(`Postgres was silent for ${silenceMillis} ms`))
  })
}

/** A pool, as layers provide it. */
export type Pool = PgClient.PgClient | SqlClient.SqlClient | PoolStats

/** Transactions last milliseconds. After this idle time a transaction has lost its client, and holds back vacuum. */
export const longestIdleTransactionMillis = 60_000

const clientLayer = (bounded: boolean) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const { applicationName, maxConnections, sockets, startupParameters, url } = yield* DatabaseSettings
      const { isPipelined = false, silenceMillis } = yield* PoolSettings
      const setUp = yield* SocketSetup
      const max = bounded ? maxConnections : 1
      const opened = new Set<Net.Socket>()
      const prepare = (socket: Net.Socket) => {
        setUp(socket)
        bound(socket, silenceMillis, opened)
      }
      return Layer.merge(
        Layer.succeed(PoolStats, { open: () => opened.size, max }),
        PgClient.layer({
          ...sockets(url, bounded ? prepare : undefined),
          applicationName,
          maxConnections: max,
          multiplex: isPipelined,
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

/** What a refusal of the server leaves unsaid. */
const advice: ReadonlyArray<readonly [RegExp, string]> = [
  [
    /unsupported startup parameter/i,
    ": that is a pooler; add it to its ignore_startup_parameters, in session mode, or connect to Postgres itself"
  ],
  [/requires a valid client certificate/, "; name it with sslcert and sslkey"]
]

/** The error with advice. */
const hint = (message: string): string => message + (advice.find(([pattern]) => pattern.test(message))?.[1] ?? "")

/** {@link layer}, after the checks of StartChecks.ts. It fails with a sentence for the operator where a guarantee would break. */
export const layerChecked: Layer.Layer<Pool, DatabaseUnusable, DatabaseSettings> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { applicationName, sockets, url } = yield* DatabaseSettings
    yield* StartChecks.ownSessions({ ...sockets(url), applicationName: `${applicationName} start` })
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
