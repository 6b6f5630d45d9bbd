/** Partitions are days in UTC, and retention counts hours, whatever the time zone of the database's sessions. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** The clock stands still at this moment. It is far in the future, so none of the template's partitions is near. */
const standAt = Effect.fnUntraced(function* (time: string) {
  const sql = yield* PgClient.PgClient
  yield* sql.unsafe(
    `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT timestamptz '${time}' $$`
  )
})

/** The partitions of that future, by where they begin and end in UTC. */
const partitions = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const rows = yield* sql<{ readonly bounds: string }>`
    SELECT child::text || ': ' || to_char(from_time AT TIME ZONE 'UTC', 'DD HH24:MI') || ' to '
           || to_char(to_time AT TIME ZONE 'UTC', 'DD HH24:MI') AS bounds
    FROM time_partitions('event_log') WHERE from_time > '2039-01-01Z' ORDER BY from_time`
  return rows.map(({ bounds }) => bounds)
})

const dayOf = (day: number) => {
  const two = (one: number) => String(one).padStart(2, "0")
  return `event_log_204003${two(day)}: ${two(day)} 00:00 to ${two(day + 1)} 00:00`
}
const days = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, index) => dayOf(first + index))

const retention = (outboxDays: number) =>
  Effect.provideService(RetentionSettings, { outboxDays, inboxDays: 8, taskDays: 30 })

it.live("partitions are made by the UTC day, up to its last moment and from its first on", () =>
  Effect.gen(function* () {
    yield* standAt("2040-03-10 23:59:59.999Z")
    yield* Maintenance.runOnce()
    assert.deepStrictEqual(yield* partitions, days(9, 14))
    yield* standAt("2040-03-11 00:00:00Z")
    yield* Maintenance.runOnce()
    assert.deepStrictEqual(yield* partitions, days(9, 15))
    // Hours later. In the zone of these sessions this is still the day before.
    yield* standAt("2040-03-11 09:29:00Z")
    assert.deepStrictEqual(yield* Maintenance.runOnce(), [])
  }).pipe(retention(3), Effect.provide(TestDatabase.layerPool))
)

it.live("a day is kept for its retention and an hour, though the clocks go forward meanwhile", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const { name, url } = yield* TestDatabase
    // In Berlin the 25th of this month has 23 hours.
    yield* sql`ALTER DATABASE ${sql(name)} SET timezone = 'Europe/Berlin'`
    yield* Effect.gen(function* () {
      yield* standAt("2040-03-23 12:00:00Z")
      yield* Maintenance.runOnce()
      assert.strictEqual((yield* partitions)[0], dayOf(22))
      yield* standAt("2040-03-26 00:59:59.999Z")
      yield* Maintenance.runOnce()
      assert.strictEqual((yield* partitions)[0], dayOf(22))
      yield* standAt("2040-03-26 01:00:00Z")
      yield* Maintenance.runOnce()
      assert.strictEqual((yield* partitions)[0], dayOf(23))
    }).pipe(Effect.provide(Layer.fresh(Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url }))))))
  }).pipe(retention(3), Effect.provide(TestDatabase.layerPool))
)
