/** A clock that a test sets, in the place of `clock_now()` in the test's own database: days pass in no time, and time still flows. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Ids } from "../../src/platform/Ids.ts"

/** Puts the clock in its place, at noon of this day in UTC: no midnight comes in between by itself. */
export const install = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE test_clock (ahead interval NOT NULL)`
  yield* sql`
    INSERT INTO test_clock
    SELECT (date_trunc('day', clock_timestamp(), 'UTC') + interval '12 hours') - clock_timestamp()`
  yield* sql.unsafe(
    `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
     AS 'SELECT clock_timestamp() + (SELECT ahead FROM test_clock)'`
  )
  yield* (yield* Ids).sample
})

/** Lets time pass, forwards or, as a clock may, backwards. */
export const advance = Effect.fnUntraced(function* (interval: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE test_clock SET ahead = ahead + ${interval}::interval`
  // As the next heartbeat would, where there is a control connection.
  yield* (yield* Ids).sample
})
