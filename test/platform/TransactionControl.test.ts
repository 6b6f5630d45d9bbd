/** The guarantees of a client's transactions: of the driver's, and of ours that replace them. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Logger, Option, Ref, References, Tracer } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Transaction, TransactionEnded } from "../../src/platform/Transaction.ts"
import * as TransactionControl from "../../src/platform/TransactionControl.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** A small pool, so that a test notices a connection that is not returned. */
const maxConnections = 2

const implementations = {
  "the driver's": Layer.unwrap(TestDatabase.useSync(({ url }) => PgClient.layer({ url, maxConnections }))),
  ours: Layer.unwrap(
    TestDatabase.useSync(({ url }) =>
      Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url, maxConnections })))
    )
  )
}

const table = Layer.effectDiscard(Effect.flatMap(PgClient.PgClient, (sql) => sql`CREATE TABLE numbers (n integer)`))

const write = (n: number) => Effect.flatMap(PgClient.PgClient, (sql) => sql`INSERT INTO numbers VALUES (${n})`)
const inTransaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(PgClient.PgClient, (sql) => sql.withTransaction(effect))

/** The committed rows, as another session sees them. Empties the table for the next test. */
const committed = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const rows = yield* sql<{ readonly n: number }>`SELECT n FROM numbers ORDER BY n`
  yield* sql`DELETE FROM numbers`
  return rows.map(({ n }) => n)
})

for (const [name, implementation] of Object.entries(implementations)) {
  const world = table.pipe(Layer.provideMerge(implementation), Layer.provideMerge(TestDatabase.layer))

  layer(world, { excludeTestServices: true })(`Transactions: ${name}`, (it) => {
    it.effect("a success commits; a failure, a defect and an interruption roll back", () =>
      Effect.gen(function* () {
        assert.strictEqual(yield* inTransaction(Effect.as(write(1), "done")), "done")
        assert.strictEqual(yield* Effect.flip(inTransaction(Effect.andThen(write(2), Effect.fail("no")))), "no")
        yield* Effect.exit(inTransaction(Effect.andThen(write(3), Effect.die("bug"))))
        const reached = yield* Deferred.make<void>()
        const fiber = yield* Effect.forkChild(
          inTransaction(
            write(4).pipe(Effect.andThen(Deferred.succeed(reached, undefined)), Effect.andThen(Effect.never))
          )
        )
        yield* Deferred.await(reached)
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* committed, [1])
      })
    )

    it.effect("a transaction without a statement begins and ends", () =>
      Effect.gen(function* () {
        assert.strictEqual(yield* inTransaction(Effect.succeed("done")), "done")
        assert.strictEqual(yield* Effect.flip(inTransaction(Effect.fail("no"))), "no")
        assert.deepStrictEqual(yield* committed, [])
      })
    )

    it.effect("no other session sees its writes before the commit", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const outside = Effect.updateContext(
          sql<{ readonly n: number }>`SELECT n FROM numbers`,
          (context: Context.Context<never>) => Context.omit(sql.transactionService)(context)
        )
        assert.deepStrictEqual(yield* inTransaction(Effect.andThen(write(1), outside)), [])
        assert.deepStrictEqual(yield* committed, [1])
      })
    )

    it.effect("a failure of an inner transaction rolls back the inner one only", () =>
      Effect.gen(function* () {
        yield* inTransaction(
          Effect.gen(function* () {
            yield* write(1)
            yield* Effect.ignore(inTransaction(Effect.andThen(write(2), Effect.fail("inner"))))
            yield* inTransaction(Effect.andThen(write(3), inTransaction(write(4))))
          })
        )
        assert.deepStrictEqual(yield* committed, [1, 3, 4])
      })
    )

    it.effect("two concurrent inner transactions don't end each other", () =>
      Effect.gen(function* () {
        const first = yield* Deferred.make<void>()
        yield* inTransaction(
          Effect.all(
            [
              inTransaction(
                write(1).pipe(Effect.andThen(Deferred.succeed(first, undefined)), Effect.andThen(write(2)))
              ),
              Effect.andThen(
                Deferred.await(first),
                Effect.ignore(inTransaction(Effect.andThen(write(3), Effect.fail("inner"))))
              ),
              Effect.andThen(Deferred.await(first), inTransaction(write(4)))
            ],
            { concurrency: "unbounded" }
          )
        )
        assert.deepStrictEqual(yield* committed, [1, 2, 4])
      })
    )

    it.effect("a commit that Postgres turned into a rollback is a failure, and its callbacks do not run", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const followed = yield* Ref.make(false)
        const error = yield* Effect.flip(
          inTransaction(
            Effect.gen(function* () {
              yield* sql.afterCommit(Ref.set(followed, true))
              yield* write(1)
              yield* Effect.ignore(sql`SELECT 1 / 0`)
            })
          )
        )
        assert.isTrue(SqlError.isSqlError(error))
        assert.deepStrictEqual([yield* committed, yield* Ref.get(followed)], [[], false])
      })
    )

    it.effect(
      "callbacks follow the commit, in order, when the connection is free again; those of a rolled-back part do not run",
      () =>
        Effect.gen(function* () {
          const sql = yield* PgClient.PgClient
          const called = yield* Ref.make<ReadonlyArray<string>>([])
          const call = (what: string) =>
            sql.afterCommit(
              // Uses all connections at once: none is still reserved.
              Effect.all([write(1), write(2)], { concurrency: "unbounded" }).pipe(
                Effect.orDie,
                Effect.andThen(Ref.update(called, (so) => [...so, what]))
              )
            )
          yield* inTransaction(
            Effect.gen(function* () {
              yield* call("outer")
              yield* inTransaction(call("inner"))
              yield* Effect.ignore(inTransaction(Effect.andThen(call("taken back"), Effect.fail("no"))))
              yield* call("last")
              assert.deepStrictEqual(yield* Ref.get(called), [])
            })
          )
          yield* Effect.exit(inTransaction(Effect.andThen(call("never"), Effect.fail("no"))))
          assert.deepStrictEqual(yield* Ref.get(called), ["outer", "inner", "last"])
          yield* call("outside")
          assert.deepStrictEqual(yield* Ref.get(called), ["outer", "inner", "last", "outside"])
          assert.deepStrictEqual(yield* committed, [1, 1, 1, 1, 2, 2, 2, 2])
        })
    )

    it.effect("a callback that dies is logged, and neither undoes the commit nor stops the other callbacks", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const called = yield* Ref.make(false)
        const logged: Array<string> = []
        const logger = Logger.make(({ cause }) => logged.push(String(cause)))
        yield* inTransaction(
          Effect.gen(function* () {
            yield* write(1)
            yield* sql.afterCommit(Effect.die("a bug in a callback"))
            yield* sql.afterCommit(Ref.set(called, true))
          })
        ).pipe(Effect.provide(Logger.layer([logger])), Effect.provideService(References.UnhandledLogLevel, "Error"))
        assert.deepStrictEqual([yield* committed, yield* Ref.get(called)], [[1], true])
        assert.isTrue(logged.some((line) => line.includes("a bug in a callback")))
      })
    )

    it.effect("a callback that is added after the end is a defect", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const context = yield* inTransaction(Effect.context<never>())
        const exit = yield* Effect.exit(Effect.provideContext(sql.afterCommit(Effect.void), context))
        assert.isTrue(Exit.hasDies(exit))
      })
    )

    it.effect("a fiber that waits for a connection can be interrupted, and takes none", () =>
      Effect.gen(function* () {
        const release = yield* Deferred.make<void>()
        const held = yield* Ref.make(0)
        const holder = inTransaction(
          write(1).pipe(Effect.andThen(Ref.update(held, (n) => n + 1)), Effect.andThen(Deferred.await(release)))
        )
        const holders = yield* Effect.forkChild(
          Effect.all(
            Array.from({ length: maxConnections }, () => holder),
            { concurrency: "unbounded" }
          )
        )
        yield* eventually(
          "every connection to be held",
          Effect.map(Ref.get(held), (n) => n === maxConnections)
        )
        const waiter = yield* Effect.forkChild(inTransaction(write(2)))
        yield* Effect.yieldNow
        yield* Fiber.interrupt(waiter)
        yield* Deferred.succeed(release, undefined)
        yield* Fiber.join(holders)
        assert.deepStrictEqual(yield* committed, [1, 1])
      })
    )

    it.effect("a connection that ended while it was idle is a failure that the caller can handle, or none", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        for (let turn = 0; turn < 10; turn++) {
          const [row] = yield* inTransaction(sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid`)
          yield* TestDatabase.administer(`SELECT pg_terminate_backend(${row!.pid})`)
          const exit = yield* Effect.exit(inTransaction(write(1)))
          assert.isFalse(Exit.hasDies(exit))
        }
        yield* committed
      })
    )

    it.effect("a transaction begins at the requested isolation level", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const [row] = yield* inTransaction(sql`SHOW transaction_isolation`).pipe(
          Effect.provideService(SqlClient.BeginTransaction, "BEGIN ISOLATION LEVEL SERIALIZABLE")
        )
        assert.deepStrictEqual(row, { transaction_isolation: "serializable" })
      })
    )

    it.effect("where spans are collected a transaction has one, with its statements' spans as children", () =>
      Effect.gen(function* () {
        const spans: Array<Tracer.NativeSpan> = []
        const tracer = Tracer.make({
          span: (options) => {
            const span = new Tracer.NativeSpan(options)
            spans.push(span)
            return span
          }
        })
        yield* Effect.provideService(inTransaction(write(1)), Tracer.Tracer, tracer)
        const transaction = spans.find(({ name }) => name === "sql.transaction")
        const statement = spans.find(({ name }) => name !== "sql.transaction")
        assert.strictEqual(transaction?.status._tag, "Ended")
        assert.strictEqual(Option.getOrUndefined(statement!.parent)?.spanId, transaction?.spanId)
        yield* committed
      })
    )
  })
}

const ours = table.pipe(Layer.provideMerge(implementations.ours), Layer.provideMerge(TestDatabase.layer))

layer(ours, { excludeTestServices: true })("Transactions: only ours", (it) => {
  it.effect("a connection whose COMMIT failed returns to the pool without its transaction", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      yield* inTransaction(write(1))
      yield* sql`ALTER TABLE numbers ADD CONSTRAINT once UNIQUE (n) DEFERRABLE INITIALLY DEFERRED`
      const error = yield* Effect.flip(inTransaction(Effect.andThen(write(2), write(2))))
      yield* sql`ALTER TABLE numbers DROP CONSTRAINT once`
      assert.isTrue(SqlError.isSqlError(error))
      for (let turn = 0; turn <= maxConnections; turn++) yield* inTransaction(write(3))
      assert.deepStrictEqual(yield* committed, [1, 3, 3, 3])
    })
  )

  it.effect(
    "a COMMIT that fails like a stale plan is not repeated outside of its transaction, where it would succeed",
    () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        yield* sql`
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'feature_not_supported'; END $$`
        yield* sql`
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON numbers DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.n = 5) EXECUTE FUNCTION refuse()`
        const told: Array<string> = []
        const refused = inTransaction(
          Effect.andThen(write(5), sql.afterCommit(Effect.sync(() => void told.push("committed"))))
        )
        // The driver knows its statements from the second time on.
        for (let turn = 0; turn < 2 * maxConnections; turn++) {
          assert.isTrue(Exit.isFailure(yield* Effect.exit(refused)))
          yield* Effect.all(
            Array.from({ length: maxConnections }, () => inTransaction(write(6))),
            {
              concurrency: maxConnections
            }
          )
        }
        assert.deepStrictEqual(told, [])
        assert.notInclude(yield* committed, 5)
        yield* sql`DROP FUNCTION refuse CASCADE`
      })
  )

  it.effect("after a COMMIT that failed before it was executed, a ROLLBACK ends the transaction", () =>
    Effect.gen(function* () {
      const { transactionService } = yield* PgClient.PgClient
      const asked: Array<string> = []
      const ask = (statement: string) => Effect.sync(() => void asked.push(statement))
      const error = new SqlError.SqlError({ reason: new SqlError.UnknownError({ cause: "cancelled" }) })
      const connection = {
        executeUnprepared: (statement: string) => Effect.as(ask(statement), []),
        executeRaw: (statement: string) => Effect.andThen(ask(statement), Effect.fail(error))
      }
      const client = TransactionControl.install({
        transactionService,
        reserve: Effect.succeed(connection)
      } as unknown as PgClient.PgClient)
      assert.strictEqual(yield* Effect.flip(client.withTransaction(Effect.void)), error)
      assert.deepStrictEqual(asked, ["BEGIN", "COMMIT", "ROLLBACK"])
    })
  )

  it.effect("a handle of an inner transaction fails once the outer one has ended", () =>
    Effect.gen(function* () {
      const inner = yield* Deferred.make<Context.Service.Shape<typeof Transaction>>()
      const left = yield* Transaction.run(
        Effect.tap(
          Effect.forkDetach(
            Transaction.run(
              Effect.flatMap(Transaction, (handle) => Effect.andThen(Deferred.succeed(inner, handle), Effect.never))
            )
          ),
          () => Deferred.await(inner)
        )
      )
      const handle = yield* Deferred.await(inner)
      for (const use of [Effect.asVoid(handle.sql`SELECT 1`), handle.afterCommit(Effect.void)]) {
        const exit = yield* Effect.exit(use)
        assert.isTrue(Exit.isFailure(exit) && String(exit.cause).includes(TransactionEnded.name))
      }
      yield* Fiber.interrupt(left)
    })
  )
})
