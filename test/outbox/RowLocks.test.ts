/** Locks on queue rows that a dead or frozen process holds, and the limits of the dispatcher's own connections against them. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Lane, laneOf } from "../../src/outbox/Lane.ts"
import { dispatcherDatabase } from "../../src/Dispatching.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as SmallTurns from "../../src/postgres/fast/SmallTurns.ts"
import { ControlSettings } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"
import * as Refusals from "../support/Refusals.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const lane = laneOf("counter")
const receipt = { partition: 0, baseOffset: 0n }

/** The pool of the frozen process. It keeps its silent connection for longer than the default, because the test itself is not frozen. */
const frozenPool = { silenceMillis: 120_000 }

/** The statements of one more dispatcher, on its own connections. */
const startQueue = Effect.gen(function* () {
  const { url } = yield* TestDatabase
  return yield* Layer.build(
    Layer.fresh(
      Queue.layer.pipe(Layer.provideMerge(dispatcherDatabase), Layer.provide(DatabaseSettings.layerOf({ url })))
    )
  )
})

/** The same with the statements of small turns. */
const startSmall = Effect.flatMap(startQueue, (context) =>
  Effect.provideContext(Layer.build(SmallTurns.layer), context)
)

/** Locks the lane's rows on a connection of `process`, and sends nothing until `awake`. Then it checks whether its transaction still exists. */
const freeze = Effect.fnUntraced(function* (
  process: Context.Context<PgClient.PgClient>,
  awake: Deferred.Deferred<void>
) {
  const frozen = yield* Deferred.make<void>()
  const fiber = yield* Transaction.run(
    Effect.gen(function* () {
      const { sql } = yield* Transaction
      yield* sql`SELECT 1 AS one FROM outbox_events WHERE lane = ${lane}::int2 FOR UPDATE`
      yield* Deferred.succeed(frozen, undefined)
      yield* Deferred.await(awake)
      yield* sql`SELECT 1 AS one`
    })
  ).pipe(Effect.provideContext(process), Effect.exit, Effect.forkScoped)
  yield* Deferred.await(frozen)
  return fiber
})

it.live(
  "a dispatcher that freezes in a transaction loses its row locks when it loses its lanes, and marks continue",
  () =>
    Effect.gen(function* () {
      yield* Transaction.run(Counters.create("counter"))
      const zombie = yield* Effect.provideService(startQueue, Database.PoolSettings, frozenPool)
      const successor = yield* startQueue
      const awake = yield* Deferred.make<void>()
      const frozen = yield* freeze(zombie, awake)
      const queue = Context.get(successor, Queue)
      yield* Lanes.mark(queue, lane, yield* Lanes.fetch(queue, lane, []), receipt)
      assert.deepStrictEqual(yield* Lanes.fetch(queue, lane, []), [])
      yield* Deferred.succeed(awake, undefined)
      assert.isTrue(Exit.isFailure(yield* Fiber.join(frozen)), "the zombie's transaction is gone")
    }).pipe(
      Effect.timeout("45 seconds"),
      Effect.scoped,
      Effect.provide(writer),
      Effect.provideService(ControlSettings, { sessionTimeoutMillis: 300, heartbeatMillis: 60 })
    )
)

it.live("a mark that can't lock its row gives up, and leaves no waiting session in Postgres", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Counters.create("counter"))
    const { url } = yield* TestDatabase
    const foreign = yield* Layer.build(
      Layer.fresh(Database.layer).pipe(
        Layer.provide(Layer.succeed(Database.PoolSettings, frozenPool)),
        Layer.provide(DatabaseSettings.layerOf({ url }))
      )
    )
    const awake = yield* Deferred.make<void>()
    yield* freeze(foreign, awake)
    const queue = Context.get(yield* startQueue, Queue)
    const impatient = Context.get(
      yield* Effect.provideService(startQueue, Database.PoolSettings, { silenceMillis: 600 }),
      Queue
    )
    const sql = yield* SqlClient.SqlClient
    const events = yield* Lanes.fetch(queue, lane, [])
    for (let turn = 0; turn < 3; turn++) {
      assert.isTrue(Exit.isFailure(yield* Effect.exit(Lanes.mark(impatient, lane, events, receipt))))
    }
    // While the row is still locked.
    yield* Counters.eventually(
      "no session to wait for a lock",
      Effect.map(
        sql`SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        (rows) => rows.length === 0
      )
    )
    yield* Deferred.succeed(awake, undefined)
    yield* Lanes.mark(queue, lane, events, receipt)
    assert.deepStrictEqual(yield* Lanes.fetch(queue, lane, []), [])
  }).pipe(Effect.timeout("45 seconds"), Effect.scoped, Effect.provide(writer))
)

for (const [what, start] of [
  ["the queue's", startQueue],
  ["one of a small turn", startSmall]
] as const)
  it.live(
    `two marks of the same runs, a zombie's and its successor's, ${what}, can't deadlock in whatever order the runs came`,
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const ids = Array.from({ length: 2_000 }, (_, index) => `counter-${index}`)
        const lanes = [Lane.make(1), Lane.make(2)] as const
        for (const lane of lanes)
          yield* Refusals.append(
            ids.find((id) => laneOf(id) === lane)!,
            1,
            2
          )
        const [zombie, successor] = [Context.get(yield* startQueue, Queue), Context.get(yield* start, Queue)]
        const runs = yield* Effect.forEach(lanes, (lane) =>
          Effect.map(Lanes.fetch(zombie, lane), (events) => ({ lane, topic: Counters.topic, events, receipt }))
        )
        const waiting = Effect.map(
          sql`SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
          (rows) => rows.length
        )
        const [isLocked, goOn] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        // The first mark gets the first row of its first lane, and waits for the second one with that lock in hand.
        const inTheWay = yield* Transaction.run(
          Effect.gen(function* () {
            const { sql } = yield* Transaction
            yield* sql`
          SELECT 1 AS one FROM outbox_events WHERE lane = 1 AND seq = ${runs[0].events[1]!.seq}::int8 FOR UPDATE`
            yield* Deferred.succeed(isLocked, undefined)
            yield* Deferred.await(goOn)
          })
        ).pipe(Effect.forkScoped)
        yield* Deferred.await(isLocked)
        const first = yield* Effect.forkScoped(zombie.mark(runs))
        yield* Counters.untilBlocked("the first mark")
        const second = yield* Effect.forkScoped(successor.mark(runs.toReversed()))
        yield* Counters.eventually(
          "both marks to wait",
          Effect.map(waiting, (count) => count === 2)
        )
        yield* Deferred.succeed(goOn, undefined)
        yield* Fiber.join(inTheWay)
        for (const mark of [first, second]) assert.isTrue(Exit.isSuccess(yield* Fiber.await(mark)))
        yield* Counters.drained
      }).pipe(Effect.timeout("45 seconds"), Effect.scoped, Effect.provide(writer))
  )
