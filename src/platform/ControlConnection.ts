/**
 * One connection of its own for what belongs to the process rather than to a request: session locks, LISTEN, the heartbeat.
 *
 * A session lock lives as long as its session, so Postgres itself frees what a dead process held. A frozen process stops
 * beating, and `idle_session_timeout` ends its session for it. No transaction is ever left open here, so nothing holds back
 * vacuum.
 */
import { PgConnection } from "@effect/sql-pg"
import {
  Cause,
  Context,
  Duration,
  Effect,
  Exit,
  Latch,
  Layer,
  Metric,
  Queue,
  Schema,
  Scope,
  SubscriptionRef
} from "effect"
import { SqlError } from "effect/sql"
import * as Backoff from "./Backoff.ts"
import { DatabaseSettings } from "./DatabaseSettings.ts"
import { Ids, timeQuery } from "./Ids.ts"
import * as Supervised from "./Supervised.ts"

/** Timing of the control connection, in milliseconds. */
export const ControlSettings = Context.Reference<{
  /** A session that is silent for this long is ended by Postgres: how long a frozen process keeps what it held. */
  readonly sessionTimeoutMillis: number
  /** How often the session shows that it is alive. Well below the timeout, which is also how long an answer may take. */
  readonly heartbeatMillis: number
}>("paid-once/platform/ControlSettings", {
  defaultValue: () => ({ sessionTimeoutMillis: 5_000, heartbeatMillis: 1_000 })
})

/** There is no session right now; it is being replaced. Whatever the last one held is gone. */
export class ControlUnavailable extends Schema.TaggedError<ControlUnavailable>()("ControlUnavailable", {}) {
  override get message() {
    return "the control connection is down and being replaced"
  }
}

/**
 * A living session. What was locked through one session must be locked anew through the next. A query that fails, or is answered too late, ends
 * it: a session's lock outlives the statement that took it, and one that nobody knows of would be nobody's for as long as the session lives.
 */
export interface ControlSession {
  /** Differs from every other session of this process. */
  readonly id: number
  /** The process id of the backend that serves this session: its name in `pg_locks`. */
  readonly backendPid: number
  readonly query: (
    sql: string,
    params?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<PgConnection.Row>, SqlError.SqlError>
  /** Sends a notification. It fails with the session, and has no timeout of its own: there may be hundreds a second. */
  readonly notify: (payload: string) => Effect.Effect<void, SqlError.SqlError>
  /** Waits until this session listens, or has ended. */
  readonly listening: Effect.Effect<void>
}

/** What a session is made of, beside its connection. */
interface Parts {
  readonly listenScope: Scope.Scope
  readonly pinScope: Scope.Closeable
  readonly listening: Latch.Latch
  /** Opened by a statement that failed: where nobody listens, nobody hears the connection's end. The next heartbeat comes at once. */
  readonly doubt: Latch.Latch
  /** Opened by a query that failed: nobody knows what it has locked, and only the session's end frees that. */
  readonly broken: Latch.Latch
}

/** The channel that all notifications of the mechanism travel on; the payload says what happened. */
export const channel = "paid_once"

const silent = () =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({
      cause: new Error("no answer"),
      message: "the control connection did not answer in time",
      operation: "query"
    })
  })

const failed = () =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({
      cause: new Error("a query failed"),
      message: "what a failed query has locked is freed by the end of its session",
      operation: "query"
    })
  })

const listenConnected = Metric.gauge("listen_connected", {
  description: "1 while the control connection is up, and listens where this process waits for anything"
})

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
    /**
     * Calls `handle` for each notification of another session, from the surrounding scope's opening to its end. Waits until the present session
     * listens. A process that never asks does not listen: Postgres would tell it of all that it says itself.
     */
    readonly onNotification: (
      handle: (payload: string) => Effect.Effect<void>
    ) => Effect.Effect<void, never, Scope.Scope>
    /** Notifies the other processes. Never inside a business transaction: NOTIFY takes an instance-wide lock at commit. */
    readonly notify: (payloads: ReadonlyArray<string>) => Effect.Effect<void, ControlUnavailable>
  }
>()("paid-once/platform/ControlConnection") {
  static readonly layer = Layer.effect(
    ControlConnection,
    Effect.gen(function* () {
      const { applicationName, url } = yield* DatabaseSettings
      const { heartbeatMillis, sessionTimeoutMillis } = yield* ControlSettings
      const ids = yield* Ids
      const session = yield* SubscriptionRef.make<ControlSession | undefined>(undefined)
      const handlers = new Set<(payload: string) => Effect.Effect<void>>()
      /** Open once anybody waits for notifications. */
      const wanted = yield* Latch.make(false)
      let sessions = 0

      const listen = (connection: PgConnection.PgConnection, { listening, listenScope }: Parts) =>
        Effect.gen(function* () {
          yield* wanted.await
          const notifications = yield* Scope.provide(connection.listen(channel), listenScope)
          yield* listening.open
          return yield* Queue.take(notifications).pipe(
            Effect.flatMap(({ payload, processId }) =>
              processId === connection.processId
                ? Effect.void
                : Effect.forEach([...handlers], (handle) => handle(payload), { discard: true })
            ),
            Effect.forever
          )
        })

      /**
       * A half-open connection accepts bytes and never answers: an answer that is late counts as none. The session is declared lost, and
       * then its pin is given back with a statement on the wire, for which the driver kills the connection: all that waits for it fails at once.
       */
      const overdue = ({ pinScope }: Parts) =>
        Effect.sleep(sessionTimeoutMillis).pipe(
          Effect.andThen(SubscriptionRef.set(session, undefined)),
          Effect.andThen(Scope.close(pinScope, Exit.void)),
          Effect.andThen(Effect.fail(new Cause.TimeoutError("the heartbeat was not answered")))
        )

      const heartbeat = (connection: PgConnection.PgConnection, stamp: Effect.Effect<void>, parts: Parts) =>
        ids
          .sampleBy(Effect.map(connection.query(timeQuery), ({ rows }) => rows))
          .pipe(
            Effect.raceFirst(overdue(parts)),
            Effect.andThen(stamp),
            Effect.andThen(Effect.raceFirst(Effect.sleep(heartbeatMillis), parts.doubt.await)),
            Effect.andThen(parts.doubt.close),
            Effect.forever
          )

      /** One session, from the connect, which may fail and is then backed off, to its end, which is logged and is no failure. */
      const serve = (stamp: Effect.Effect<void>) =>
        Effect.gen(function* () {
          const scope = yield* Effect.scope
          // Made before the connection, and so closed behind it: an UNLISTEN would wait for an answer on a connection that gives none.
          const listenScope = yield* Scope.fork(scope)
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
          const pinScope = yield* Scope.fork(scope)
          const connection = yield* Scope.provide(base.pin, pinScope)
          const parts: Parts = {
            listenScope,
            pinScope,
            listening: yield* Effect.acquireRelease(Latch.make(false), (latch) => latch.open),
            doubt: yield* Latch.make(false),
            broken: yield* Latch.make(false)
          }
          const hold = Effect.gen(function* () {
            // Who finds a session, and looks at what there is, misses nothing that is said after it.
            if (handlers.size > 0) yield* Effect.raceFirst(parts.listening.await, overdue(parts))
            yield* Metric.update(listenConnected, 1)
            yield* SubscriptionRef.set(session, {
              id: ++sessions,
              backendPid: connection.processId,
              // Bounded here, for a rebalance can't be interrupted: a query that never ends would keep the dead session for ever.
              query: (sql, params) =>
                connection.query(sql, params).pipe(
                  Effect.timeoutOrElse({ duration: sessionTimeoutMillis, orElse: () => Effect.fail(silent()) }),
                  Effect.tapError(() => parts.broken.open),
                  Effect.map((result) => result.rows)
                ),
              notify: (payload) =>
                Effect.asVoid(connection.query("SELECT pg_notify($1, $2)", [channel, payload])).pipe(
                  Effect.tapError(() => parts.doubt.open)
                ),
              listening: parts.listening.await
            })
            const broken = Effect.andThen(parts.broken.await, Effect.fail(failed()))
            return yield* Effect.raceFirst(heartbeat(connection, stamp, parts), broken)
          })
          yield* Effect.raceFirst(listen(connection, parts), hold).pipe(
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
          Effect.andThen(Effect.flatMap(Backoff.millisAfter(Backoff.reconnect, 1), Effect.sleep))
        )
      yield* Supervised.forkLoop("control-connection", serve)

      /** {@link ControlUnavailable} where there is no session, or it breaks meanwhile. */
      const withSession = <A>(use: (current: ControlSession) => Effect.Effect<A, SqlError.SqlError>) =>
        Effect.flatMap(SubscriptionRef.get(session), (current): Effect.Effect<A, ControlUnavailable> =>
          current === undefined
            ? Effect.fail(new ControlUnavailable())
            : use(current).pipe(
                Effect.tapError((error) => Effect.logWarning("control connection: a query failed", Cause.fail(error))),
                Effect.mapError(() => new ControlUnavailable())
              )
        )

      return ControlConnection.of({
        session,
        query: (sql, params) => withSession((current) => current.query(sql, params)),
        onNotification: (handle) =>
          Effect.acquireRelease(
            Effect.andThen(
              Effect.sync(() => handlers.add(handle)),
              wanted.open
            ),
            () => Effect.sync(() => handlers.delete(handle))
          ).pipe(
            Effect.andThen(SubscriptionRef.get(session)),
            Effect.flatMap((current) => current?.listening ?? Effect.void)
          ),
        notify: (payloads) => withSession(({ notify }) => Effect.forEach(payloads, notify, { discard: true }))
      })
    })
  )
}
