/** Rebuilds beside a consumer that goes on: the cut between the new rows and the events that come after them. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { type Progress, Rebuild } from "../../src/operations/rebuild/Rebuild.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as World from "./RebuildWorld.ts"

const { apply, archive, damage, happen, leftOver, make, operator, rebuild, trails, versions, world } = World

it.live("a slice that has written before the swap is in the new rows: the swap waits for it", () =>
  Effect.gen(function* () {
    const { hooks, projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    yield* archive("a", versions(4, 6))
    // The slice has written 4 and 5, and its transaction is open.
    const written = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    let count = 0
    hooks.live = () =>
      ++count === 3 ? Effect.andThen(Deferred.succeed(written, undefined), Deferred.await(goOn)) : Effect.void
    const slice = yield* Effect.forkScoped(apply(subscriber, "a", versions(4, 6)))
    yield* Deferred.await(written)
    const told: Array<Progress> = []
    const rebuilding = yield* Effect.forkScoped(rebuild(projection, told))
    // It has tried once, given the slice its way, and tries again.
    yield* Counters.eventually(
      "a second attempt at the swap",
      Effect.sync(() => told.filter(({ phase }) => phase === "swapping").length >= 2)
    )
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(slice)
    assert.deepInclude(yield* Fiber.join(rebuilding), {
      events: 6,
      tables: [{ table: "trails", removed: 0, added: 0, changed: 0 }]
    })
    assert.deepStrictEqual(yield* trails, ["a 1,2,3,4,5,6"])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a slice that has moved its cursors, and writes only after the swap, is not in the new rows twice", () =>
  Effect.gen(function* () {
    const { hooks, projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    yield* archive("a", versions(4, 6))
    yield* damage
    const begun = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    let count = 0
    hooks.live = () =>
      ++count === 1 ? Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(goOn)) : Effect.void
    const slice = yield* Effect.forkScoped(apply(subscriber, "a", versions(4, 6)))
    yield* Deferred.await(begun)
    assert.deepInclude(yield* rebuild(projection), { events: 3 })
    assert.deepStrictEqual(yield* trails, ["a 1,2,3"])
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(slice)
    assert.deepStrictEqual(yield* trails, ["a 1,2,3,4,5,6"])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("what the consumer applies between the catch-up and the swap is filled in under the lock", () =>
  Effect.gen(function* () {
    const { projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    const during = Effect.andThen(happen(subscriber, "a", versions(4, 6)), happen(subscriber, "b", versions(1, 2)))
    const context = yield* Effect.context<Effect.Services<typeof during>>()
    let happened = false
    const rebuilt = yield* Effect.flatMap(Rebuild, ({ run }) =>
      run(projection, operator, ({ phase }) => {
        if (phase !== "swapping" || happened) return Effect.void
        happened = true
        return Effect.provideContext(Effect.orDie(during), context)
      })
    )
    assert.deepInclude(rebuilt, { events: 8, tables: [{ table: "trails", removed: 0, added: 0, changed: 0 }] })
    assert.deepStrictEqual(yield* trails, ["a 1,2,3,4,5,6", "b 1,2"])
    assert.strictEqual(yield* leftOver, 0)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an event without an effect that is applied under the lock is missed by nobody", () =>
  Effect.gen(function* () {
    const { hooks, projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    yield* archive("b", [1], { silent: true })
    let rounds = 0
    // The last page of the swap: while it holds the lock, a slice that writes nothing commits.
    const during = Effect.gen(function* () {
      if (++rounds !== 4) return
      yield* Effect.orDie(apply(subscriber, "b", [1], { silent: true }))
    })
    const context = yield* Effect.context<ApplySlice | SqlClient.SqlClient>()
    hooks.rebuilt = () => Effect.provideContext(during, context)
    let happened = false
    yield* Effect.flatMap(Rebuild, ({ run }) =>
      run(projection, operator, ({ phase }) => {
        if (phase !== "swapping" || happened) return Effect.void
        happened = true
        return Effect.provideContext(Effect.orDie(happen(subscriber, "a", [4])), context)
      })
    )
    assert.strictEqual(rounds, 4)
    yield* happen(subscriber, "b", [2])
    assert.deepStrictEqual(yield* trails, ["a 1,2,3,4", "b 2"])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live(
  "a reader sees the old rows or the new ones: at every moment, and in a snapshot that is older than the rebuild",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const client = yield* PgClient.PgClient
      const { projection, subscriber } = make()
      for (const id of ["a", "b", "c"]) yield* happen(subscriber, id, versions(1, 700))
      const right = yield* trails
      yield* damage
      const wrong = yield* trails
      const isRebuilt = yield* Deferred.make<void>()
      const hasSnapshot = yield* Deferred.make<void>()
      const old = yield* Effect.forkScoped(
        Transaction.run(
          Effect.gen(function* () {
            const { sql } = yield* Transaction
            yield* sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`
            // A snapshot, and no lock on the table.
            yield* sql`SELECT 1 AS one FROM counters LIMIT 1`
            yield* Deferred.succeed(hasSnapshot, undefined)
            yield* Deferred.await(isRebuilt)
            return yield* sql<{ readonly id: string }>`SELECT id FROM trails ORDER BY id`
          })
        ).pipe(Effect.provideService(PgClient.PgClient, client))
      )
      yield* Deferred.await(hasSnapshot)
      const seen = new Set<string>()
      const watcher = yield* Effect.forkScoped(
        Effect.forever(Effect.map(trails, (rows) => void seen.add(rows.join("\n"))))
      )
      yield* rebuild(projection)
      yield* trails
      yield* Fiber.interrupt(watcher)
      yield* Deferred.succeed(isRebuilt, undefined)
      assert.deepStrictEqual(
        (yield* Fiber.join(old)).map(({ id }) => id),
        ["a", "c", "nobody"]
      )
      assert.deepStrictEqual(yield* trails, right)
      seen.delete(right.join("\n"))
      assert.deepStrictEqual([...seen], [wrong.join("\n")])
      assert.isEmpty(yield* sql`SELECT 1 AS one FROM pg_locks WHERE relation = 'trails'::regclass`)
    }).pipe(Effect.scoped, Effect.provide(world))
)
