/**
 * BEGIN, COMMIT, ROLLBACK and savepoints: a client's `withTransaction` and `afterCommit`, in place of the driver's.
 *
 * They have the structure and the guarantees of `makeWithTransaction` in `effect/sql`, for less than half of its processor time. The driver copies
 * all services in scope twice for each transaction, and makes a span that nobody collects.
 *
 * Not kept: `SqlResolver` finds the transaction through the client only. `Reactivity` does not wait for the commit. The span has neither attributes
 * nor events. A callback that another fiber adds during COMMIT is not run.
 *
 * Improved: after a broken connection a transaction fails with the error of the connection, and not with that of ROLLBACK. A connection whose COMMIT
 * was refused returns to the pool without its transaction.
 */
import type { PgClient, PgConnection } from "@effect/sql-pg"
import { Context, Effect, Exit, Scope, Semaphore, Tracer } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import type { SqlConnection } from "effect/sql"

/** A transaction (depth 0) or a savepoint in it, as the client's `transactionService` holds it. The driver reads connection and depth. */
export type Level = readonly [connection: SqlConnection.Connection, depth: number] & {
  readonly parent: Level | undefined
  /** Run after the commit, with the services around the transaction. A savepoint's callbacks go to its parent when it is released. */
  readonly callbacks: Array<Effect.Effect<void>>
  /** Until what runs in it has ended. */
  open: boolean
  /** Two savepoints side by side would end one another, on one connection: the second waits. Made for the first. */
  savepoints: Semaphore.Semaphore | undefined
}

/** Makes `client` begin and end its transactions as this file says. */
export const install = <Client extends SqlClient.SqlClient | PgClient.PgClient>(client: Client): Client =>
  Object.assign(client, { withTransaction: withTransaction(client), afterCommit: afterCommit(client) })

const withTransaction =
  (client: SqlClient.SqlClient): SqlClient.SqlClient["withTransaction"] =>
  <R, E, A>(effect: Effect.Effect<A, E, R>) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.contextWith((context: Context.Context<R>) => {
        const within = (level: Level, span: Tracer.Span | undefined) => {
          const joined = Effect.provideService(restore(effect), client.transactionService, level)
          return span === undefined ? joined : Effect.provideService(joined, Tracer.ParentSpan, span)
        }
        const run = (span?: Tracer.Span): Effect.Effect<A, E | SqlError.SqlError, R> => {
          const parent = levelIn(client, context)
          return parent === undefined
            ? topLevel(client, context, restore, (level) => within(level, span))
            : savepoint(parent, (level) => within(level, span))
        }
        // Without an exporter nobody would read the span. Events and log lines name the span of the request.
        return Context.getOrUndefined(context, Tracer.Tracer) === undefined
          ? run()
          : Effect.useSpan("sql.transaction", { kind: "internal" }, (span) => run(span))
      })
    )

const afterCommit =
  (client: SqlClient.SqlClient): SqlClient.SqlClient["afterCommit"] =>
  <R>(effect: Effect.Effect<void, never, R>) =>
    Effect.contextWith((context: Context.Context<R>) => {
      const level = levelIn(client, context)
      if (level === undefined) return withoutFailure(effect)
      if (!isOpen(level)) return Effect.die(new Error("afterCommit: the transaction has already ended"))
      // With the services of now, less the transaction, which will be over.
      const outside = Context.omit(client.transactionService)(context)
      level.callbacks.push(Effect.provideContext(effect, outside as Context.Context<R>))
      return Effect.void
    })

/** A top-level transaction, on a connection that it reserves until its end. Uninterruptible except inside `restore`. */
const topLevel = <A, E, R>(
  client: SqlClient.SqlClient,
  context: Context.Context<never>,
  restore: <A1, E1, R1>(effect: Effect.Effect<A1, E1, R1>) => Effect.Effect<A1, E1, R1>,
  within: (level: Level) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | SqlError.SqlError, R> => {
  let committed: Level | undefined
  const transaction = Effect.scopedWith((scope) =>
    Effect.flatMap(restore(Scope.provide(client.reserve, scope)), (connection) => {
      const level = makeLevel(connection, undefined)
      return Effect.flatMap(begin(connection, Context.get(context, SqlClient.BeginTransaction)), () =>
        Effect.onExitPrimitive(within(level), (exit) => {
          level.open = false
          if (Exit.isFailure(exit)) return undo(connection, "ROLLBACK")
          return Effect.map(commit(connection), () => {
            committed = level
          })
        })
      )
    })
  )
  // After the connection is free again; also if returning it failed, because the commit stands.
  return Effect.onExitPrimitive(transaction, () =>
    committed === undefined || committed.callbacks.length === 0
      ? undefined
      : Effect.forEach(committed.callbacks, withoutFailure, { discard: true })
  )
}

const savepoint = <A, E, R>(
  parent: Level,
  within: (level: Level) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | SqlError.SqlError, R> => {
  const level = makeLevel(parent[0], parent)
  const [connection, depth] = level
  const name = `effect_sql_${depth}`
  const release = Effect.orDie(control(connection, `RELEASE SAVEPOINT ${name}`))
  parent.savepoints ??= Semaphore.makeUnsafe(1)
  return parent.savepoints.withPermit(
    Effect.flatMap(control(connection, `SAVEPOINT ${name}`), () =>
      Effect.onExitPrimitive(within(level), (exit) => {
        level.open = false
        return Exit.isFailure(exit)
          ? Effect.andThen(
              undo(connection, `ROLLBACK TO SAVEPOINT ${name}`),
              undo(connection, `RELEASE SAVEPOINT ${name}`)
            )
          : Effect.map(release, () => {
              parent.callbacks.push(...level.callbacks)
            })
      })
    )
  )
}

/** The transaction or savepoint of `client` in this context. */
export const levelIn = (client: SqlClient.SqlClient, context: Context.Context<never>): Level | undefined =>
  // This file and SingleStatement.ts provide it, with a value of `makeLevel`.
  Context.getOrUndefined(context as Context.Context<SqlClient.TransactionConnection>, client.transactionService) as
    | Level
    | undefined

/** Whether neither it nor a transaction around it has ended. */
export const isOpen = (level: Level): boolean => level.open && (level.parent === undefined || isOpen(level.parent))

export const makeLevel = (connection: SqlConnection.Connection, parent: Level | undefined): Level =>
  Object.assign([connection, parent === undefined ? 0 : parent[1] + 1] as const, {
    parent,
    callbacks: [],
    open: true,
    savepoints: undefined
  })

/** Prepared, because the text is the same each time. */
const control = (connection: SqlConnection.Connection, statement: string) =>
  connection.execute(statement, [], undefined)

/** Not prepared: the session may have lost its prepared statements. The end of a broken connection has rolled everything back. */
const undo = (connection: SqlConnection.Connection, statement: string): Effect.Effect<void> =>
  Effect.catch(connection.executeUnprepared(statement, [], undefined), (error) =>
    error.reason._tag === "ConnectionError" ? Effect.void : Effect.die(error)
  )

/** The statement that begins a transaction. */
export const beginStatement = "BEGIN"

/** Not prepared, so that a socket can recognise its bytes (`postgres/fast/DeferredBegin.ts`). */
const begin = (connection: SqlConnection.Connection, statement = beginStatement) =>
  connection.executeUnprepared(statement, [], undefined)

/**
 * Postgres answers `ROLLBACK` to the COMMIT of a transaction in which a statement failed: nothing was written then. When COMMIT itself fails, a
 * ROLLBACK follows: the transaction may still be open, and if it is not, the ROLLBACK does no harm.
 *
 * Not prepared: the driver repeats a prepared statement whose error may mean a stale plan. A deferred trigger can fail with such an error, and a
 * second COMMIT succeeds, outside of the transaction that was rolled back.
 */
const commit = (connection: SqlConnection.Connection): Effect.Effect<void, SqlError.SqlError> => {
  // A `PgClient` reserves an object with the driver's own connection. That alone tells Postgres' answer to a statement that is not prepared.
  const { connection: driver } = connection as { readonly connection?: PgConnection.PgConnection }
  const answer = driver?.query("COMMIT", [], false) ?? connection.executeRaw("COMMIT", [])
  return Effect.flatMap(
    Effect.tapError(answer, () => undo(connection, "ROLLBACK")),
    (result) =>
      (result as { readonly command?: string }).command === "ROLLBACK" ? Effect.fail(rolledBack()) : Effect.void
  )
}

const rolledBack = () => {
  const message = "COMMIT rolled back: a statement of the transaction had failed"
  return new SqlError.SqlError({
    reason: new SqlError.UnknownError({ cause: new Error(message), message, operation: "commit" })
  })
}

/** A callback that fails is logged, and the others run. */
export const withoutFailure = <R>(effect: Effect.Effect<void, never, R>): Effect.Effect<void, never, R> =>
  Effect.ignoreCause(effect, { log: "Unhandled", message: "a callback after a commit failed" })
