/**
 * Single statements that commit: a transaction of one statement, and the last statement of a longer one.
 *
 * Postgres runs a statement as a transaction by itself, so BEGIN, COMMIT and a connection of its own add nothing to it but two answers to wait for. And
 * the COMMIT of a transaction whose last statement is known can travel with that one.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Exit, Stream } from "effect"
import type { SqlConnection, SqlError } from "effect/sql"
import { Faults, type FaultsService, off } from "./Faults.ts"
import { Transaction } from "./Transaction.ts"
import * as TransactionControl from "./TransactionControl.ts"

/** What was to be one statement were more, which were not run. Always a mistake in the program, and so a defect. */
export class SecondStatement extends Error {
  override readonly name = "SecondStatement"
  constructor() {
    super("there is room for one statement alone here")
  }
}

/**
 * `client` for `Transaction.run` of effects that run one statement. The statement commits or writes nothing. A second one is a defect, and so
 * is a savepoint.
 *
 * **Details**
 *
 * - Code after the statement can't undo it, so it must not fail. An example is the check of `Outbox.save` on the rows that its write returns.
 * - An interruption waits for the statement's answer and for the callbacks. Else a committed change might go unannounced.
 * - The statement is a plain one of the transaction's handle, and no stream. Options of BEGIN have no effect.
 * - Where faults may be injected it is `client` itself: there are points between a statement and its COMMIT.
 */
export const over = (client: PgClient.PgClient, faults: FaultsService): PgClient.PgClient =>
  faults === off
    ? (Object.create(client, { withTransaction: { value: withTransaction(client) } }) as PgClient.PgClient)
    : client

const withTransaction =
  (client: PgClient.PgClient): PgClient.PgClient["withTransaction"] =>
  <R, E, A>(effect: Effect.Effect<A, E, R>) =>
    Effect.contextWith((outside: Context.Context<R>) => {
      if (TransactionControl.levelIn(client, outside) !== undefined) return Effect.die(new SecondStatement())
      const level = TransactionControl.makeLevel(firstOn(client, outside), undefined)
      const joined = Effect.provideService(effect, client.transactionService, level)
      return Effect.uninterruptible(
        Effect.onExitPrimitive(joined, (exit) => {
          level.open = false
          return Exit.isFailure(exit)
            ? undefined
            : Effect.forEach(level.callbacks, TransactionControl.withoutFailure, { discard: true })
        })
      )
    })

/** A connection for one statement, which runs on any of the client's. With the services of `outside`, in which there is no transaction. */
const firstOn = (client: PgClient.PgClient, outside: Context.Context<never>): SqlConnection.Connection =>
  once((text, params) =>
    // The handle's statement has a span already.
    Effect.updateContext(Effect.withTracerEnabled(client.unsafe(text, params), false), () => outside)
  )

/** Whether the sockets of the pool promise to commit with the last statement (`postgres/fast/JoinedCommit.ts`). */
export const JoinedCommit = Context.Reference<boolean>("paid-once/platform/JoinedCommit", { defaultValue: () => false })

/** Asks the socket for its promise, which is a row: the next packet has the last statement. Postgres itself gives no row, and promises nothing. */
export const announcement = "SELECT WHERE false"

/**
 * A function that makes an effect of one statement the end of the transaction around it. The transaction takes no statement after it. Where
 * {@link JoinedCommit} is set, COMMIT travels with the statement: a round trip less.
 *
 * **Details**
 *
 * - Code after the statement can't undo it, so it must not fail. If it does, the callbacks after the commit run all the same.
 * - An interruption waits for the statement's answer. Else a committed change might go unannounced.
 * - In a savepoint, and where faults may be injected, COMMIT is a statement of its own.
 */
export const last = Effect.fnUntraced(function* (client: PgClient.PgClient) {
  const isJoined = (yield* JoinedCommit) && (yield* Faults) === off
  const ending: PgClient.PgClient = Object.create(client, { withTransaction: { value: endingOn(client, isJoined) } })
  return <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.provideService(Transaction.run(effect), PgClient.PgClient, ending) as Effect.Effect<
      A,
      Exclude<E, SqlError.SqlError>,
      R | Transaction
    >
})

const endingOn =
  (client: PgClient.PgClient, isJoined: boolean): PgClient.PgClient["withTransaction"] =>
  <R, E, A>(effect: Effect.Effect<A, E, R>) =>
    Effect.contextWith((outside: Context.Context<R>) => {
      const around = TransactionControl.levelIn(client, outside)
      if (around === undefined) return Effect.die(new Error("a last statement needs a transaction around it"))
      const [connection, depth] = around
      const run: Execute = (text, params) =>
        Effect.flatMap(
          isJoined && depth === 0 ? connection.executeUnprepared(announcement, [], undefined) : Effect.succeed([]),
          (promise) =>
            Effect.map(connection.execute(text, params, undefined), (rows) => {
              around.isCommitted = promise.length > 0
              return rows
            })
        )
      const level = Object.assign(TransactionControl.makeLevel(once(run), around), { callbacks: around.callbacks })
      return Effect.onExitPrimitive(Effect.provideService(effect, client.transactionService, level), () => {
        level.open = false
        around.open = false
        return undefined
      }).pipe(Effect.uninterruptible)
    })

type Execute = (text: string, params: ReadonlyArray<unknown>) => ReturnType<SqlConnection.Connection["execute"]>

/** A connection for one statement. */
const once = (execute: Execute): SqlConnection.Connection => {
  let isUsed = false
  const refuse = () => Effect.die(new SecondStatement())
  return {
    execute: (text, params) =>
      Effect.suspend(() => {
        if (isUsed) return refuse()
        isUsed = true
        return execute(text, params)
      }),
    executeUnprepared: refuse,
    executeRaw: refuse,
    executeValues: refuse,
    executeValuesUnprepared: refuse,
    executeStream: () => Stream.die(new SecondStatement())
  }
}
