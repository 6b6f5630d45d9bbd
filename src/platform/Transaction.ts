/**
 * A database transaction as a service: what must commit together asks for it in its requirements.
 *
 * `Outbox.append`, an aggregate's save and every write of a consumer need a {@link Transaction}, and only
 * {@link run} provides one, so code outside a transaction does not compile (test/types/Transaction.ts).
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect } from "effect"
import { SqlError, Statement } from "effect/sql"
import type { SqlConnection } from "effect/sql"
import * as Backoff from "./Backoff.ts"
import * as TransactionControl from "./TransactionControl.ts"

/**
 * An open transaction.
 *
 * @see run for how to get one
 */
export class Transaction extends Context.Service<
  Transaction,
  {
    /**
     * Builds statements that run on this transaction's connection, wherever they are run from. A statement that is run after
     * the transaction has ended is a defect, never a quiet write outside of it.
     */
    readonly sql: Statement.Constructor
    /**
     * Runs `effect` after the outermost commit, and never after a rollback. For hints only: a process can die between the commit and the
     * effect, so nothing that must happen belongs here.
     */
    readonly afterCommit: (effect: Effect.Effect<void>) => Effect.Effect<void>
  }
>()("paid-once/platform/Transaction") {
  /**
   * Runs `effect` in a transaction: all of its writes commit or, if it fails, dies or is interrupted, none of them.
   *
   * **Details**
   *
   * - A nested transaction is a savepoint: after a failure only its writes are rolled back, and the outer effect can continue.
   * - After a serialization failure or a deadlock the whole effect runs again, at most as often as `Backoff.transaction` allows. So the effect must
   *   do nothing but database work.
   * - Only the outermost transaction retries: such a failure also ends the savepoint's transaction.
   * - Any other `SqlError` becomes a defect: a caller can't act on it. An error that a caller can act on, like a unique violation, is caught at its
   *   statement.
   * - With `retryDeadlocks` off a deadlock is a defect, too. For callers that can do better than repeat an effect that may deadlock again.
   */
  static readonly run = <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    { retryDeadlocks = true }: { readonly retryDeadlocks?: boolean } = {}
  ): Effect.Effect<A, Exclude<E, SqlError.SqlError>, Exclude<R, Transaction> | PgClient.PgClient> =>
    Effect.contextWith((context: Context.Context<Exclude<R, Transaction> | PgClient.PgClient>) => {
      const client = Context.get(context, PgClient.PgClient)
      const isNested = TransactionControl.levelIn(client, context) !== undefined
      const attempt = client.withTransaction(provideHandle(client, effect)).pipe(
        // Services turn SqlErrors into defects where their callers can't act on them. A transient one is still worth a retry.
        Effect.catchDefect((defect) =>
          isTransient(defect) ? Effect.fail(defect as SqlError.SqlError) : Effect.die(defect)
        )
      )
      const isWorthRetrying = (error: unknown) => isTransient(error) && (retryDeadlocks || !isDeadlock(error))
      const outcome = isNested ? attempt : Backoff.retry(attempt, Backoff.transaction, isWorthRetrying)
      return Effect.catch(outcome, (error) =>
        SqlError.isSqlError(error) ? Effect.die(error) : Effect.fail(error as Exclude<E, SqlError.SqlError>)
      )
    })
}

/** Whether the transaction lost against a concurrent one: then the same transaction may succeed the next time. */
export const isTransient = (error: unknown): boolean =>
  SqlError.isSqlError(error) && (error.reason._tag === "SerializationError" || error.reason._tag === "DeadlockError")

/** Whether Postgres ended the transaction to resolve a deadlock. */
export const isDeadlock = (error: unknown): boolean =>
  SqlError.isSqlError(error) && error.reason._tag === "DeadlockError"

/** Gives `effect` a handle on the transaction that is open around it. */
const provideHandle = <A, E, R>(
  client: PgClient.PgClient,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, Exclude<R, Transaction>> =>
  Effect.contextWith((context: Context.Context<never>) => {
    const level = TransactionControl.levelIn(client, context)
    // withTransaction has just provided it.
    if (level === undefined)
      return Effect.die(new Error("this client's transactions are not ours: TransactionControl.install"))
    const whileOpen = <A1, E1, R1>(use: () => Effect.Effect<A1, E1, R1>) =>
      Effect.suspend(() => (TransactionControl.isOpen(level) ? use() : Effect.die(new TransactionEnded())))
    return Effect.provideService(effect, Transaction, {
      sql: statementsOn(level[0], whileOpen),
      afterCommit: (after) =>
        whileOpen(() => {
          level.callbacks.push(after)
          return Effect.void
        })
    })
  })

const compiler = PgClient.makeCompiler(undefined, false)
const noConnection: SqlConnection.Acquirer = Effect.die(new Error("only the helpers of this constructor are used"))
const helpers = { ...Statement.make(noConnection, compiler, [], undefined) }

/**
 * A statement constructor for one connection. `Statement.make` remembers each constructor in a `WeakMap`, which only a full garbage collection
 * clears. At hundreds of transactions a second it would force one every few seconds.
 */
const statementsOn = (
  connection: SqlConnection.Connection,
  whileOpen: <A, E, R>(use: () => Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
): Statement.Constructor => {
  const acquirer = whileOpen(() => Effect.succeed(connection))
  // Saves a scope for each statement. Streams need the connection for longer, and use the acquirer.
  const borrower: SqlConnection.Borrower = (use) => whileOpen(() => use(connection))
  const statement = (strings: TemplateStringsArray, args: Array<unknown>) =>
    Statement.statement(acquirer, compiler, strings, args, [], undefined, borrower)
  return Object.assign(
    (strings: TemplateStringsArray | string, ...args: Array<unknown>) =>
      typeof strings === "string" ? Statement.identifier(strings) : statement(strings, args),
    helpers,
    { unsafe: (sql: string, params?: ReadonlyArray<unknown>) => statement(whole, [Statement.literal(sql, params)]) }
  ) as Statement.Constructor
}
/** A template that is nothing but its one argument. */
const whole: TemplateStringsArray = Object.assign(["", ""], { raw: ["", ""] })

/** A transaction's handle was used after its end. Always a mistake in the program, and so a defect. */
export class TransactionEnded extends Error {
  override readonly name = "TransactionEnded"
  constructor() {
    super("this transaction has ended: a handle must not leave Transaction.run")
  }
}
