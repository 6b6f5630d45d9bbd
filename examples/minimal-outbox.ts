/**
 * The smallest whole service: one aggregate (an account), one event (`Deposited`), one subscriber (`totals`).
 *
 *   npm run example examples/minimal-outbox.ts
 */
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Schedule, Schema } from "effect"
import { randomUUID } from "node:crypto"
import * as EmbeddedBroker from "paid-once/brokers/embedded/EmbeddedBroker"
import type { Subscriber } from "paid-once/inbox/Subscriber"
import { Outbox } from "paid-once/outbox/Outbox"
import * as Plain from "paid-once/plain/Plain"
import * as Rows from "paid-once/platform/Rows"
import { Transaction } from "paid-once/platform/Transaction"
import { location } from "./Location.ts"

const createTables = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  // An aggregate's row counts its events: a transaction that adds one takes the next version, under the row's lock.
  yield* sql`CREATE TABLE IF NOT EXISTS accounts (id text PRIMARY KEY, balance int NOT NULL, version int NOT NULL)`
  yield* sql`CREATE TABLE IF NOT EXISTS totals (account text PRIMARY KEY, deposits int NOT NULL, amount int NOT NULL)`
})

/** Changes the account and writes the event, in one statement: both commit, or neither. */
const deposit = Effect.fn("deposit")(function* (account: string, amount: number) {
  const { sql } = yield* Transaction
  const outbox = yield* Outbox
  return yield* outbox.save(
    { topic: "accounts", aggregateType: "Account", aggregateId: account },
    [{ eventType: "Deposited", schemaVersion: 1, data: { amount } }],
    sql<{ readonly version: number }>`
      INSERT INTO accounts VALUES (${account}, ${amount}, 1)
      ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + ${amount}, version = accounts.version + 1
      RETURNING version`
  )
})

const readDeposited = Schema.decodeUnknownEffect(Schema.Struct({ amount: Schema.Int }))

/** Called once for each event, in the order of its account, in the transaction that also marks the event as applied. */
const totals: Subscriber = {
  name: "totals",
  topic: "accounts",
  firstSight: "from-version-1",
  handle: Effect.fn("totals.handle")(function* (event) {
    const { sql } = yield* Transaction
    const { amount } = yield* readDeposited(event.data)
    yield* sql`
      INSERT INTO totals VALUES (${event.aggregateId}, 1, ${amount})
      ON CONFLICT (account) DO UPDATE SET deposits = totals.deposits + 1, amount = totals.amount + ${amount}`
  })
}

/** From top to bottom: the loops, the layers that transactions use, and the layers below both. They start from bottom to top. */
export const service = Layer.mergeAll(Plain.dispatcher, Plain.consumer(totals)).pipe(
  // An event that can't go on stops its lane or partition. With parking (subscriber.ts) only its aggregate waits.
  Layer.provide(Plain.blocking),
  Layer.provideMerge(Plain.outbox)
)

const total = Rows.first(Schema.Struct({ deposits: Schema.Int, amount: Schema.Int }))

/** Deposits three times, waits until the subscriber has applied the deposits, and returns the account. */
export const program = Effect.gen(function* () {
  yield* createTables
  const sql = yield* PgClient.PgClient
  const account = randomUUID()
  yield* Effect.forEach([10, 20, 30], (amount) => Transaction.run(deposit(account, amount)), { discard: true })
  const seen = yield* total(sql`SELECT deposits, amount FROM totals WHERE account = ${account}`).pipe(
    Effect.repeat({ until: (row) => row?.deposits === 3, schedule: Schedule.spaced("20 millis") }),
    Effect.timeout("60 seconds")
  )
  yield* Console.log(`The subscriber saw ${seen?.deposits} deposits, ${seen?.amount} in all.`)
  return account
})

if (import.meta.main) {
  const platform = EmbeddedBroker.layer.pipe(Layer.provideMerge(Plain.database()), Layer.provide(location))
  await Effect.runPromise(Effect.provide(program, Layer.provideMerge(service, platform)))
}
