/** A clock that a test sets, instead of `clock_now()` in the test's own database. The test can skip days, and time still passes between. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Ids } from "../../src/platform/Ids.ts"

/** Installs the clock, at noon of this day in UTC, so that no midnight passes during the test. */
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

/** Moves the clock forwards, or backwards as a real clock may jump. */
export const advance = Effect.fnUntraced(function* (interval: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE test_clock SET ahead = ahead + ${interval}::interval`
  // The next heartbeat would do this, if there is a control connection.
  yield* (yield* Ids).sample
})
