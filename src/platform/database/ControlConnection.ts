/**
 * One connection of its own for what belongs to the process rather than to a request: session locks, LISTEN, the heartbeat.
 *
 * A session lock lives as long as its session, so Postgres itself frees what a dead process held. A frozen process stops
 * beating, and `idle_session_timeout` ends its session for it. No transaction is ever left open here, so nothing holds back
 * vacuum.
 */
import { PgConnection } from "@effect/sql-pg"
import { Cause, Context, Duration, Effect, Layer, Metric, Queue, Schema, type Scope, SubscriptionRef } from "effect"
import { SqlError } from "effect/sql"
import * as Supervised from "../Supervised.ts"
import { DatabaseSettings } from "./Database.ts"

/** Timing of the control connection, in milliseconds. */
export const ControlSettings = Context.Reference<{
  /** A session that is silent for this long is ended by Postgres: how long a frozen process keeps what it held. */
  readonly sessionTimeoutMillis: number
  /** How often the session shows that it is alive, and how long an answer may take. Well below the timeout. */
  readonly heartbeatMillis: number
}>("paid-once/platform/database/ControlSettings", {
  defaultValue: () => ({ sessionTimeoutMillis: 5_000, heartbeatMillis: 1_000 })
})

/** There is no session right now; it is being replaced. Whatever the last one held is gone. */
export class ControlUnavailable extends Schema.TaggedError<ControlUnavailable>()("ControlUnavailable", {}) {
  override get message() {
    return "the control connection is down and being replaced"
  }
}

/** A living session. What was locked through one session must be locked anew through the next. */
export interface ControlSession {
  /** Differs from every other session of this process. */
  readonly id: number
  /** The process id of the backend that serves this session: its name in `pg_locks`. */
  readonly backendPid: number
  readonly query: (
    sql: string,
    params?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<PgConnection.Row>, SqlError.SqlError>
}

/** The channel that all notifications of the mechanism travel on; the payload says what happened. */
export const channel = "paid_once"

/** Spreads reconnects over a fifth of a second, which is little beside the session timeout. */
const reconnectJitterMillis = 200

const silent = () =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({
      cause: new Error("no answer"),
      message: "the control connection did not answer in time",
      operation: "query"
    })
  })

const listenConnected = Metric.gauge("listen_connected", { description: "1 while the control connection listens" })

export class ControlConnection extends Context.Service<
  ControlConnection,
  {
    /** The present session, and its changes: `undefined` while there is none. */
    readonly session: SubscriptionRef.SubscriptionRef<ControlSession | undefined>
    /** Runs a query on the present session; {@link ControlUnavailable} when there is none or it broke meanwhile. */
    readonly query: (
      sql: string,
      params?: ReadonlyArray<unknown>
    ) => Effect.Effect<ReadonlyArray<PgConnection.Row>, ControlUnavailable>
    /** Calls `handle` for each notification of another session, from the surrounding scope's opening to its end. */
    readonly onNotification: (
      handle: (payload: string) => Effect.Effect<void>
    ) => Effect.Effect<void, never, Scope.Scope>
    /** Notifies the other processes. Never inside a business transaction: NOTIFY takes an instance-wide lock at commit. */
    readonly notify: (payloads: ReadonlyArray<string>) => Effect.Effect<void, ControlUnavailable>
  }
>()("paid-once/platform/database/ControlConnection") {
  static readonly layer = Layer.effect(
    ControlConnection,
    Effect.gen(function* () {
      const { applicationName, url } = yield* DatabaseSettings
      const { heartbeatMillis, sessionTimeoutMillis } = yield* ControlSettings
      const session = yield* SubscriptionRef.make<ControlSession | undefined>(undefined)
      const handlers = new Set<(payload: string) => Effect.Effect<void>>()
      let sessions = 0

      const listen = (notifications: Queue.Dequeue<PgConnection.Notification, SqlError.SqlError>, backendPid: number) =>
        Queue.take(notifications).pipe(
          Effect.flatMap(({ payload, processId }) =>
            processId === backendPid
              ? Effect.void
              : Effect.forEach([...handlers], (handle) => handle(payload), { discard: true })
          ),
          Effect.forever
        )

      /**
       * A half-open connection accepts bytes and never answers: an answer that is late counts as none. The session is declared
       * lost before the query is given up, for that waits for an answer once more, for seconds.
       */
      const overdue = Effect.sleep(sessionTimeoutMillis).pipe(
        Effect.andThen(SubscriptionRef.set(session, undefined)),
        Effect.andThen(Effect.fail(new Cause.TimeoutError("the heartbeat was not answered")))
      )

      const heartbeat = (connection: PgConnection.PgConnection, stamp: Effect.Effect<void>) =>
        connection
          .query("SELECT 1")
          .pipe(
            Effect.raceFirst(overdue),
            Effect.andThen(stamp),
            Effect.andThen(Effect.sleep(heartbeatMillis)),
            Effect.forever
          )

      /** One session, from the connect, which may fail and is then backed off, to its end, which is logged and is no failure. */
      const serve = (stamp: Effect.Effect<void>) =>
        Effect.gen(function* () {
          const base = yield* PgConnection.make({
            url,
            applicationName: `${applicationName} control`,
            connectTimeout: Duration.millis(sessionTimeoutMillis),
            startupParameters: {
              idle_session_timeout: String(sessionTimeoutMillis),
              // Nothing is written here. A NOTIFY has a commit record all the same, and is a hint: it need not wait for the disk.
              synchronous_commit: "off"
            }
          })
          // Pinned: the listener, the locks and the heartbeat take turns on this one connection.
          const connection = yield* base.pin
          const notifications = yield* connection.listen(channel)
          yield* Metric.update(listenConnected, 1)
          yield* SubscriptionRef.set(session, {
            id: ++sessions,
            backendPid: connection.processId,
            // Bounded here, for a rebalance can't be interrupted: a query that never ends would keep the dead session for ever.
            query: (sql, params) =>
              connection.query(sql, params).pipe(
                Effect.timeoutOrElse({ duration: sessionTimeoutMillis, orElse: () => Effect.fail(silent()) }),
                Effect.map((result) => result.rows)
              )
          })
          yield* Effect.raceFirst(listen(notifications, connection.processId), heartbeat(connection, stamp)).pipe(
            Effect.catch((error) =>
              Effect.logWarning("the control connection broke and will be replaced", Cause.fail(error))
            )
          )
        }).pipe(
          Effect.onExit(() =>
            Effect.andThen(SubscriptionRef.set(session, undefined), Metric.update(listenConnected, 0))
          ),
          Effect.scoped,
          // When Postgres restarts, every process loses its session at the same moment: they must not all return at the same one.
          Effect.andThen(
            Effect.flatMap(Supervised.fullJitterMillis(0, reconnectJitterMillis, reconnectJitterMillis), Effect.sleep)
          )
        )
      yield* Supervised.forkLoop("control-connection", serve)

      const query = (sql: string, params?: ReadonlyArray<unknown>) =>
        Effect.flatMap(
          SubscriptionRef.get(session),
          (current): Effect.Effect<ReadonlyArray<PgConnection.Row>, ControlUnavailable> =>
            current === undefined
              ? Effect.fail(new ControlUnavailable())
              : current.query(sql, params).pipe(
                  Effect.tapError((error) =>
                    Effect.logWarning("control connection: a query failed", Cause.fail(error))
                  ),
                  Effect.mapError(() => new ControlUnavailable())
                )
        )

      return ControlConnection.of({
        session,
        query,
        onNotification: (handle) =>
          Effect.acquireRelease(
            Effect.sync(() => handlers.add(handle)),
            () => Effect.sync(() => handlers.delete(handle))
          ).pipe(Effect.asVoid),
        notify: (payloads) =>
          payloads.length === 0
            ? Effect.void
            : Effect.asVoid(
                query("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload", [channel, payloads])
              )
      })
    })
  )
}
