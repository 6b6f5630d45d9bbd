/**
 * Transactions of one statement. Postgres runs a statement as a transaction by itself, so BEGIN, COMMIT and a connection of its own add nothing to it
 * but two answers to wait for.
 */
import type { PgClient } from "@effect/sql-pg"
import { type Context, Effect, Exit, Stream } from "effect"
import type { SqlConnection } from "effect/sql"
import { type FaultsService, off } from "./Faults.ts"
import * as TransactionControl from "./TransactionControl.ts"

/** A transaction of one statement was given more, which was not run. Always a mistake in the program, and so a defect. */
export class SecondStatement extends Error {
  override readonly name = "SecondStatement"
  constructor() {
    super("this transaction is for one statement alone")
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
const firstOn = (client: PgClient.PgClient, outside: Context.Context<never>): SqlConnection.Connection => {
  let isUsed = false
  const execute: SqlConnection.Connection["execute"] = (text, params) =>
    Effect.suspend(() => {
      if (isUsed) return Effect.die(new SecondStatement())
      isUsed = true
      // The handle's statement has a span already.
      return Effect.updateContext(Effect.withTracerEnabled(client.unsafe(text, params), false), () => outside)
    })
  const refuse = () => Effect.die(new SecondStatement())
  return {
    execute,
    executeUnprepared: refuse,
    executeRaw: refuse,
    executeValues: refuse,
    executeValuesUnprepared: refuse,
    executeStream: () => Stream.die(new SecondStatement())
  }
}
