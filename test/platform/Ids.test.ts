/** Ids that begin with the database's time. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { randomUUID } from "node:crypto"
import { ControlConnection, ControlSettings } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Ids from "../../src/platform/Ids.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { TaskId } from "../../src/tasks/TaskType.ts"
import * as Counters from "../support/Counters.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** The milliseconds at the start of an id. */
const millisOf = (id: string) => parseInt(id.slice(0, 8) + id.slice(9, 13), 16)

const midnight = Date.UTC(2026, 0, 2)

/** A generator on a clock that the test moves. The generator has learned that 1,000 on that clock is midnight. */
const atMidnight = (drawUuid: () => string = randomUUID) => {
  const clock = { millis: 1_000 }
  const ids = Ids.generator(() => clock.millis, drawUuid)
  ids.learn(midnight, 1_000)
  return { clock, ...ids }
}

describe("an id", () => {
  it("is a UUID version 7 that begins with the database's time, and what has elapsed since", () => {
    const { clock, next } = atMidnight()
    clock.millis += 86_399_999.9
    const id = next()
    assert.isTrue(Schema.is(TaskId)(id))
    assert.strictEqual(millisOf(id), midnight + 86_399_999)
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  })

  it("is greater than the one before, however many are drawn in a millisecond", () => {
    // The counter starts at its highest value, so that it overflows.
    const { next } = atMidnight(() => randomUUID().replace(/^(.{15})...(.*)$/, "$1fff$2"))
    const ids = Array.from({ length: 10_000 }, next)
    assert.deepStrictEqual(ids, ids.toSorted())
    assert.strictEqual(new Set(ids).size, ids.length)
    // 2,048 ids of the first millisecond, and 4,096 of each millisecond that is used early.
    assert.strictEqual(millisOf(ids[0]!), midnight)
    assert.strictEqual(millisOf(ids.at(-1)!), midnight + 2)
  })

  it("does not fall behind when the database's clock is set back by a minute, and follows it when it is more", () => {
    const { clock, learn, next } = atMidnight()
    const before = next()
    learn(midnight - Ids.longestStandstillMillis, clock.millis)
    const after = next()
    assert.isAbove(after.localeCompare(before), 0)
    assert.strictEqual(millisOf(after), midnight)
    learn(midnight - Ids.longestStandstillMillis - 1, clock.millis)
    assert.strictEqual(millisOf(next()), midnight - Ids.longestStandstillMillis - 1)
  })

  it("follows the database's clock forwards at once", () => {
    const { clock, learn, next } = atMidnight()
    next()
    learn(midnight + 86_400_000, clock.millis)
    assert.strictEqual(millisOf(next()), midnight + 86_400_000)
  })
})

const databaseMillis = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const [row] = yield* sql.unsafe<{ readonly millis: number }>(Ids.timeQuery)
  return row!.millis
})

const world = TestProcess.outbox.pipe(Layer.provideMerge(TestDatabase.layer), Layer.provideMerge(TestProcess.quiet))

it.live("the layer reads the database's time, however far it is from the host's", () =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    yield* DatabaseClock.advance("400 days")
    // A second process on the clock that was moved.
    const ids = Context.get(yield* Layer.build(Layer.fresh(Ids.Ids.layer)), Ids.Ids)
    const millis = millisOf(ids.next())
    assert.approximately(millis, yield* databaseMillis, 5_000)
    assert.isAbove(millis, Date.now() + 300 * 86_400_000)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a heartbeat of the control connection reads the database's time again", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    yield* DatabaseClock.install
    const ids = yield* Layer.build(Layer.fresh(Ids.Ids.layer))
    // The update is not `DatabaseClock.advance`, which would tell this process the new time.
    const sql = yield* PgClient.PgClient
    yield* sql`UPDATE test_clock SET ahead = ahead + interval '1 day'`
    assert.isBelow(millisOf(Context.get(ids, Ids.Ids).next()), (yield* databaseMillis) - 80_000_000)
    yield* Layer.build(
      Layer.fresh(ControlConnection.layer).pipe(
        Layer.provide(Layer.mergeAll(Layer.succeedContext(ids), Fibers.layer, DatabaseSettings.layerOf({ url }))),
        Layer.provide(Layer.succeed(ControlSettings, { sessionTimeoutMillis: 5_000, heartbeatMillis: 20 }))
      )
    )
    const isNear = Effect.map(
      databaseMillis,
      (now) => Math.abs(millisOf(Context.get(ids, Ids.Ids).next()) - now) < 5_000
    )
    yield* Counters.eventually("ids of the new day", isNear)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("at midnight an id of yesterday and one of tomorrow find their partitions, and each event its own again", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* DatabaseClock.install
    yield* Maintenance.runOnce()
    const [day] = yield* sql<{ readonly start: number }>`
      SELECT (extract(epoch FROM date_trunc('day', clock_now(), 'UTC')) * 1000)::float8 AS start`
    for (const [millis, name] of [
      [day!.start - 1, "yesterday's last"],
      [day!.start, "today's first"],
      [day!.start + 86_400_000 - 1, "today's last"],
      [day!.start + 86_400_000, "tomorrow's first"]
    ] as const) {
      const fresh = Ids.generator(() => 0, randomUUID)
      fresh.learn(millis, 0)
      const id = fresh.next()
      yield* sql`INSERT INTO processed_events VALUES ('midnight', ${id}::uuid, clock_now())`
      const [found] = yield* sql<{ readonly days: number }>`
        SELECT to_date(right(tableoid::regclass::text, 8), 'YYYYMMDD') - (clock_now() AT TIME ZONE 'UTC')::date AS days
        FROM processed_events WHERE event_id = ${id}::uuid`
      assert.strictEqual(found?.days, millis < day!.start ? -1 : millis < day!.start + 86_400_000 ? 0 : 1, name)
      // A record that comes again finds its mark, whatever the clock says by then.
      yield* DatabaseClock.advance("2 hours")
      const again =
        yield* sql`INSERT INTO processed_events VALUES ('midnight', ${id}::uuid, clock_now()) ON CONFLICT DO NOTHING RETURNING 1 AS one`
      assert.strictEqual(again.length, 0, name)
      yield* DatabaseClock.advance("-2 hours")
    }
  }).pipe(Effect.provide(world))
)
