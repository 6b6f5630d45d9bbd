/** Transactions of one statement, on Postgres. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber } from "effect"
import { Faults } from "../../src/platform/Faults.ts"
import * as SingleStatement from "../../src/platform/SingleStatement.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** The client, the one for single statements, and an empty table. */
const begin = Effect.gen(function* () {
  const client = yield* PgClient.PgClient
  yield* client`DROP TABLE IF EXISTS numbers`
  yield* client`CREATE TABLE numbers (n integer UNIQUE)`
  return { client, single: SingleStatement.over(client, yield* Faults) }
})

const insert = (n: number) => Transaction.use(({ sql }) => sql`INSERT INTO numbers VALUES (${n}) RETURNING n`)

const numbers = Effect.map(
  Effect.flatMap(PgClient.PgClient, (client) => client<{ readonly n: number }>`SELECT n FROM numbers ORDER BY n`),
  (rows) => rows.map(({ n }) => n)
)

const alone = <A, E>(effect: Effect.Effect<A, E, Transaction>, client: PgClient.PgClient) =>
  Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

layer(TestDatabase.layerPool, { excludeTestServices: true })("SingleStatement", (it) => {
  it.effect("the statement commits, and then the callbacks run", () =>
    Effect.gen(function* () {
      const { client, single } = yield* begin
      const told: Array<ReadonlyArray<number>> = []
      const look = Effect.provideService(
        Effect.map(numbers, (found) => void told.push(found)),
        PgClient.PgClient,
        client
      )
      const rows = yield* alone(
        Effect.andThen(
          Transaction.use(({ afterCommit }) => afterCommit(Effect.orDie(look))),
          insert(1)
        ),
        single
      )
      assert.deepStrictEqual(rows, [{ n: 1 }])
      assert.deepStrictEqual(told, [[1]])
    })
  )

  it.effect("it runs without BEGIN: VACUUM is allowed nowhere else", () =>
    Effect.gen(function* () {
      const { client, single } = yield* begin
      const vacuum = Transaction.use(({ sql }) => sql`VACUUM numbers`)
      yield* alone(vacuum, single)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(alone(vacuum, client))))
    })
  )

  it.effect("a statement that fails writes nothing, and no callback runs", () =>
    Effect.gen(function* () {
      const { single } = yield* begin
      let told = 0
      const twice = Transaction.use(({ afterCommit, sql }) =>
        Effect.andThen(afterCommit(Effect.sync(() => void told++)), sql`INSERT INTO numbers VALUES (1), (1)`)
      )
      assert.isTrue(Exit.isFailure(yield* Effect.exit(alone(twice, single))))
      assert.deepStrictEqual(yield* numbers, [])
      assert.strictEqual(told, 0)
    })
  )

  it.effect("a second statement is a defect, and is not run", () =>
    Effect.gen(function* () {
      const { single } = yield* begin
      const two = yield* Effect.exit(alone(Effect.andThen(insert(1), insert(2)), single))
      assert.isTrue(Exit.isFailure(two) && Cause.squash(two.cause) instanceof SingleStatement.SecondStatement)
      assert.deepStrictEqual(yield* numbers, [1])
    })
  )

  it.effect("a savepoint is a defect, of the program or by Postgres, and what is in it is not run", () =>
    Effect.gen(function* () {
      const { client, single } = yield* begin
      for (const inner of [client, single]) {
        const nested = yield* Effect.exit(alone(alone(insert(1), inner), single))
        assert.isTrue(Exit.isFailure(nested) && Cause.hasDies(nested.cause))
      }
      assert.deepStrictEqual(yield* numbers, [])
    })
  )

  it.effect("an interruption waits for the statement, and for what follows a commit", () =>
    Effect.gen(function* () {
      const { client, single } = yield* begin
      let told = 0
      const slow = Transaction.use(({ afterCommit, sql }) =>
        Effect.andThen(
          sql`INSERT INTO numbers SELECT 1 FROM pg_sleep(0.3)`,
          afterCommit(Effect.sync(() => void told++))
        )
      )
      const running = yield* Effect.forkChild(alone(slow, single))
      yield* eventually(
        "the statement to run",
        Effect.map(
          client`SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.3)%' AND pid <> pg_backend_pid()`,
          (found) => found.length > 0
        )
      )
      yield* Fiber.interrupt(running)
      assert.deepStrictEqual(yield* numbers, [1])
      assert.strictEqual(told, 1)
    })
  )

  it.effect("a connection that breaks under the statement fails it once, and writes nothing", () =>
    Effect.gen(function* () {
      const { client, single } = yield* begin
      const slow = Transaction.use(({ sql }) => sql`INSERT INTO numbers SELECT 1 FROM pg_sleep(60)`)
      const running = yield* Effect.forkChild(Effect.exit(alone(slow, single)))
      yield* eventually(
        "its backend to be ended",
        Effect.map(
          client`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()`,
          (found) => found.length > 0
        )
      )
      assert.isTrue(Exit.isFailure(yield* Fiber.join(running)))
      assert.deepStrictEqual(yield* numbers, [])
      yield* alone(insert(2), single)
      assert.deepStrictEqual(yield* numbers, [2])
    })
  )

  it.effect("what lost against a concurrent transaction runs again, and may use its one statement anew", () =>
    Effect.gen(function* () {
      const { single } = yield* begin
      let attempts = 0
      const lost = Transaction.use(({ sql }) =>
        attempts++ === 0
          ? sql`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END $$`
          : sql`INSERT INTO numbers VALUES (1)`
      )
      yield* alone(lost, single)
      assert.strictEqual(attempts, 2)
      assert.deepStrictEqual(yield* numbers, [1])
    })
  )

  it.effect("a handle that is used after the end is a defect", () =>
    Effect.gen(function* () {
      const { single } = yield* begin
      const { sql } = yield* alone(Transaction, single)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`INSERT INTO numbers VALUES (1)`)))
      assert.deepStrictEqual(yield* numbers, [])
    })
  )

  it.effect("where faults may be injected it is an ordinary transaction", () =>
    Effect.gen(function* () {
      const { client } = yield* begin
      const faults = {
        at: () => Effect.void,
        around: <A, E, R>(_: string, operation: Effect.Effect<A, E, R>) => operation
      }
      const ordinary = SingleStatement.over(client, faults)
      const undone = Effect.andThen(insert(1), Effect.die("a fault before the commit"))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(alone(undone, ordinary))))
      assert.deepStrictEqual(yield* numbers, [])
    })
  )
})
