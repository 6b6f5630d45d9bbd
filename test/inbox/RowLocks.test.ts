/** Row locks of a member that froze in the middle of a slice, and how the consumers' own connections bound them. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { HandleSettings } from "../../src/inbox/Handle.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import * as Consumers from "../../src/main/Consumers.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { eventually } from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const { deliver, effectsOf, makePartition, makeSubscriber, record } = Deliveries

/** The steps of one more process, and its connections. */
const startMember = Effect.gen(function* () {
  const { url } = yield* TestDatabase
  return yield* Layer.build(
    Layer.fresh(
      Consumers.steps.pipe(
        Layer.provideMerge(Inbox.layer),
        Layer.provideMerge(Consumers.database),
        Layer.provide(DatabaseSettings.layerOf({ url }))
      )
    )
  )
})

/** Moves the cursor of "a" on a connection of `process`, then sends nothing until `awake`, and fails if its transaction is gone. */
const freeze = Effect.fnUntraced(function* (
  process: Context.Context<PgClient.PgClient>,
  awake: Deferred.Deferred<void>
) {
  const frozen = yield* Deferred.make<void>()
  const fiber = yield* Transaction.run(
    Effect.gen(function* () {
      const { sql } = yield* Transaction
      yield* sql`UPDATE consumer_cursors SET version = 2 WHERE consumer_name = 'one' AND aggregate_id = 'a'`
      yield* Deferred.succeed(frozen, undefined)
      yield* Deferred.await(awake)
      yield* sql`SELECT 1 AS one`
    })
  ).pipe(Effect.provideContext(process), Effect.exit, Effect.forkScoped)
  yield* Deferred.await(frozen)
  return fiber
})

/** The pool of the frozen member, which must not give up its silent connection before Postgres does. */
const frozenPool = { silenceMillis: 120_000 }

/** A time limit for the test that is below the pool's. */
const run = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  effect.pipe(Effect.timeout("45 seconds"), Effect.scoped, Effect.provide(Deliveries.process))

it.live("a slice that can't lock its rows gives up, and leaves no session in Postgres that waits for them", () =>
  run(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { subscriber } = makeSubscriber("one")
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice([record("a", 1)]))
      const awake = yield* Deferred.make<void>()
      const { url } = yield* TestDatabase
      const foreign = Layer.fresh(Database.layer).pipe(
        Layer.provide(Layer.succeed(Database.PoolSettings, frozenPool)),
        Layer.provide(DatabaseSettings.layerOf({ url }))
      )
      const frozen = yield* freeze(yield* Layer.build(foreign), awake)
      const member = yield* Effect.provideService(startMember, Database.PoolSettings, { silenceMillis: 600 })
      const slice = partition.slice([record("a", 2), record("b", 1)])
      for (let turn = 0; turn < 3; turn++) {
        assert.isTrue(Exit.isFailure(yield* Effect.exit(Context.get(member, ApplySlice).run(subscriber, slice))))
      }
      // The row is still locked here.
      yield* eventually(
        "no session to wait for a lock",
        Effect.map(
          sql`SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
          (rows) => rows.length === 0
        )
      )
      // A lock on a row blames no event, so no event is held.
      assert.deepStrictEqual(yield* sql`SELECT 1 AS one FROM inbox_holds`, [])
      yield* Deferred.succeed(awake, undefined)
      yield* Fiber.join(frozen)
    })
  )
)

it.live(
  "a member that freezes in the middle of a slice loses its locks soon after its handlers' time limit, and the slice goes on",
  () =>
    run(
      Effect.gen(function* () {
        const { subscriber } = makeSubscriber("one")
        const partition = makePartition()
        yield* deliver(subscriber, partition.slice([record("a", 1)]))
        const awake = yield* Deferred.make<void>()
        const zombie = yield* startMember.pipe(
          Effect.provideService(HandleSettings, { timeoutMillis: 100 }),
          Effect.provideService(Database.PoolSettings, frozenPool)
        )
        const frozen = yield* freeze(zombie, awake)
        yield* deliver(subscriber, partition.slice([record("a", 2), record("b", 1)]))
        assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
        yield* Deferred.succeed(awake, undefined)
        assert.isTrue(Exit.isFailure(yield* Fiber.join(frozen)), "the zombie's transaction is gone")
      })
    )
)
