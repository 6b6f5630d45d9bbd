/**
 * The control connection: one connection of a process for its session locks and the heartbeat, which belong to no request.
 *
 * A session lock lives as long as its session, so Postgres frees the locks of a dead process. A frozen process sends no heartbeat, and
 * `idle_session_timeout` ends its session. LISTEN has a connection beside it: a frozen process reads no notifications, and where its socket is
 * full Postgres waits, and ends no session. No transaction stays open on either, so nothing holds back vacuum.
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
import { hostname } from "node:os"
import * as Backoff from "./Backoff.ts"
import { DatabaseSettings } from "./DatabaseSettings.ts"
import { Ids, timeQuery } from "./Ids.ts"
import { innermost } from "./Innermost.ts"
import * as Supervised from "./Supervised.ts"

/** Timing of the control connection, in milliseconds. */
export const ControlSettings = Context.Reference<{
  /** A session that is silent for this long is ended by Postgres: how long a frozen process keeps what it held. */
  readonly sessionTimeoutMillis: number
  /** The time between heartbeats. Well below the session timeout, which also bounds the time of an answer. */
  readonly heartbeatMillis: number
}>("paid-once/platform/ControlSettings", {
  defaultValue: () => ({ sessionTimeoutMillis: 5_000, heartbeatMillis: 1_000 })
})

/** There is no session now; it is being replaced. The locks of the last one are gone. */
export class ControlUnavailable extends Schema.TaggedError<ControlUnavailable>()("ControlUnavailable", {}) {
  override get message() {
    return "the control connection is down and being replaced"
  }
}

/**
 * A living session. Locks of one session must be taken anew in the next. A query that fails, or is answered too late, ends the session: it may have
 * taken locks that this process does not know of, and only the session's end frees them.
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

/** A connection of its own. Closing `pinScope` while a statement is on the wire kills it. */
interface Pinned {
  readonly connection: PgConnection.PgConnection
  readonly pinScope: Scope.Closeable
}

/** The parts of a session beside its connection. */
interface Parts {
  readonly listening: Latch.Latch
  /** Opened by a failed statement, to make the next heartbeat come at once: without LISTEN nothing else notices the connection's end. */
  readonly doubt: Latch.Latch
  /** Opened by a failed query: its locks are unknown, and only the session's end frees them. */
  readonly broken: Latch.Latch
}

/** The channel of all notifications of the mechanism; the payload says what happened. */
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
      message: "the locks of a failed query are freed by the end of its session",
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
     * Calls `handle` for each notification of another session until the surrounding scope ends. Returns when the present session listens. A
     * process that never calls this does not listen: Postgres would send it all its own notifications.
     */
    readonly onNotification: (handle: (payload: string) => void) => Effect.Effect<void, never, Scope.Scope>
    /** Notifies the other processes. Never inside a business transaction: NOTIFY takes an instance-wide lock at commit. */
    readonly notify: (payloads: ReadonlyArray<string>) => Effect.Effect<void, ControlUnavailable>
  }
>()("paid-once/platform/ControlConnection") {
  static readonly layer = Layer.effect(
    ControlConnection,
    Effect.gen(function* () {
      const { applicationName, sockets, url } = yield* DatabaseSettings
      const { heartbeatMillis, sessionTimeoutMillis } = yield* ControlSettings
      const ids = yield* Ids
      const session = yield* SubscriptionRef.make<ControlSession | undefined>(undefined)
      const handlers = new Set<(payload: string) => void>()
      /** Open once there is a handler of notifications. */
      const wanted = yield* Latch.make(false)
      let sessions = 0

      const connect = (name: string, settings: Readonly<Record<string, string>>) =>
        Effect.gen(function* () {
          const base = yield* PgConnection.make({
            ...sockets(url),
            // An operator finds the process that holds a lock by it (SlotOwners.ts). Postgres cuts a name at 63 bytes.
            applicationName: `${applicationName} ${name} ${process.pid}@${hostname()}`,
            connectTimeout: Duration.millis(sessionTimeoutMillis),
            startupParameters: { idle_session_timeout: String(sessionTimeoutMillis), ...settings }
          })
          const pinScope = yield* Scope.fork(yield* Effect.scope)
          return { connection: yield* Scope.provide(base.pin, pinScope), pinScope } satisfies Pinned
        })

      /**
       * A half-open connection accepts bytes and never answers, so a late answer counts as none. The session is declared lost. Then the pin is
       * closed while a statement is on the wire, for which the driver kills the connection: all statements that wait on it fail at once.
       */
      const overdue = ({ pinScope }: Pinned) =>
        Effect.sleep(sessionTimeoutMillis).pipe(
          Effect.andThen(SubscriptionRef.set(session, undefined)),
          Effect.andThen(Scope.close(pinScope, Exit.void)),
          Effect.andThen(Effect.fail(new Cause.TimeoutError("the heartbeat was not answered")))
        )

      const heartbeat = (pinned: Pinned, stamp: Effect.Effect<void>, doubt: Latch.Latch) =>
        ids
          .sampleBy(Effect.map(pinned.connection.query(timeQuery), ({ rows }) => rows))
          .pipe(
            Effect.raceFirst(overdue(pinned)),
            Effect.andThen(stamp),
            Effect.andThen(Effect.raceFirst(Effect.sleep(heartbeatMillis), doubt.await)),
            Effect.andThen(doubt.close),
            Effect.forever
          )

      /** Hears what is sent by sessions other than `ownProcessId`, once a handler wants it. */
      const listen = (ownProcessId: number, { doubt, listening }: Parts) =>
        Effect.gen(function* () {
          yield* wanted.await
          // Made before the connection, and so closed after it: else an UNLISTEN would wait on a connection that no longer answers.
          const listenScope = yield* Scope.fork(yield* Effect.scope)
          const pinned = yield* connect("listen", {})
          const notifications = yield* Effect.raceFirst(
            Scope.provide(pinned.connection.listen(channel), listenScope),
            overdue(pinned)
          )
          yield* listening.open
          const hear = Queue.take(notifications).pipe(
            Effect.map(({ payload, processId }) => {
              if (processId !== ownProcessId) for (const handle of handlers) handle(payload)
            }),
            Effect.forever({ disableYield: true })
          )
          return yield* Effect.raceFirst(hear, heartbeat(pinned, Effect.void, doubt))
        })

      /** One session. A connect that fails is a failure, and retried with backoff; the end of a session is logged, and is none. */
      const serve = (stamp: Effect.Effect<void>) =>
        Effect.gen(function* () {
          // A NOTIFY writes a commit record. It is a hint, and need not wait for the disk.
          const pinned = yield* connect("control", { synchronous_commit: "off" })
          const { connection } = pinned
          const parts: Parts = {
            listening: yield* Effect.acquireRelease(Latch.make(false), (latch) => latch.open),
            doubt: yield* Latch.make(false),
            broken: yield* Latch.make(false)
          }
          const hold = Effect.gen(function* () {
            // The session is shown only once it listens: a reader that then looks at the database misses no notification.
            if (handlers.size > 0) yield* Effect.raceFirst(parts.listening.await, overdue(pinned))
            yield* Metric.update(listenConnected, 1)
            yield* SubscriptionRef.set(session, {
              id: ++sessions,
              backendPid: connection.processId,
              // Bounded here: a rebalance can't be interrupted, and a query without an end would keep the dead session for ever.
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
            return yield* Effect.raceFirst(heartbeat(pinned, stamp, parts.doubt), broken)
          })
          yield* Effect.raceFirst(listen(connection.processId, parts), hold).pipe(
            Effect.catch((error) =>
              Effect.logWarning(`the control connection broke and will be replaced: ${innermost(error)}`)
            )
          )
        }).pipe(
          Effect.onExit(() =>
            Effect.andThen(SubscriptionRef.set(session, undefined), Metric.update(listenConnected, 0))
          ),
          Effect.scoped,
          // When Postgres restarts, all processes lose their sessions at the same moment, and must not all reconnect at the same one.
          Effect.andThen(Effect.flatMap(Backoff.millisAfter(Backoff.reconnect, 1), Effect.sleep))
        )
      yield* Supervised.forkLoop("control-connection", serve)

      /** Fails with {@link ControlUnavailable} where there is no session, or it breaks meanwhile. */
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
