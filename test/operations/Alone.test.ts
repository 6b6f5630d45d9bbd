/** Work that runs once at a time: a process that does not run any more keeps nobody out. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { PgClient } from "@effect/sql-pg"
import { TestClock } from "effect/testing"
import * as Alone from "../../src/operations/rebuild/Alone.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

it.live("the session of a frozen process ends, and another one has the lock", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    // No time passes for it, as for a frozen process: its heart does not beat.
    yield* Effect.forkScoped(Effect.provide(Alone.run("a test", Effect.never), TestClock.layer()))
    const holders = Effect.map(
      sql`SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = (hashtext('a test')::int8 & 4294967295)::oid`,
      (rows) => rows.length
    )
    yield* Effect.repeat(holders, { until: (count) => count === 1 })
    yield* Effect.repeat(Effect.delay(holders, "200 millis"), { until: (count) => count === 0 })
    assert.deepStrictEqual(yield* Alone.run("a test", Effect.succeed("done")), Option.some("done"))
  }).pipe(Effect.scoped, Effect.provide(Layer.provide(TestProcess.platform, TestDatabase.layer)))
)
