/** The doctor's check of locks: no session keeps others waiting. It names the session, which the checks of what stands still behind it can't. */
import { Context, Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { lasting } from "../../platform/Lasting.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { type Check, psql, told } from "./Check.ts"

export const LockLimits = Context.Reference<{
  /** A transaction that blocks others is looked at again after this time. The service's own ones end within seconds. */
  readonly againMillis: number
}>("paid-once/operations/doctor/LockLimits", { defaultValue: () => ({ againMillis: 8_000 }) })

const blockers = Rows.all(
  Schema.Struct({
    pid: Schema.Int,
    transaction: Schema.String,
    application: Schema.String,
    /** Tables that nobody else can write meanwhile. */
    tables: Schema.NullOr(Schema.String),
    waiting: Schema.Int,
    /** Null where this role may not see when the transaction began. */
    seconds: Schema.NullOr(Schema.Finite)
  })
)

/**
 * Sessions that others wait for, and that wait for nobody themselves; and those that keep writers from a table, although nobody waits at this moment: the
 * service's waits are bounded. Processes that wait for their turn by an advisory lock are well.
 */
const look = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  blockers(sql`
    WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE pid <> pg_backend_pid()),
    waits AS MATERIALIZED (
      SELECT DISTINCT l.pid, blocker FROM locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid, unnest(pg_blocking_pids(l.pid)) AS blocker
      WHERE NOT l.granted AND l.locktype <> 'advisory' AND a.datname = current_database()),
    kept AS MATERIALIZED (
      SELECT l.pid, string_agg(DISTINCT t.relname, ', ') AS tables FROM locks AS l JOIN pg_class AS t ON t.oid = l.relation
      WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        AND t.relnamespace = current_schema()::regnamespace AND t.relkind IN ('r', 'p') AND NOT t.relispartition
      GROUP BY l.pid)
    SELECT a.pid, min(v.virtualtransaction) AS transaction,
           coalesce(nullif(a.application_name, ''), 'unnamed') || coalesce(' of ' || a.usename, '') || coalesce(', ' || a.state, '') AS application,
           min(kept.tables) AS tables, count(DISTINCT waits.pid)::int4 AS waiting, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
    FROM pg_stat_activity AS a JOIN locks AS v ON v.pid = a.pid AND v.locktype = 'virtualxid' AND v.granted
    LEFT JOIN waits ON waits.blocker = a.pid LEFT JOIN kept ON kept.pid = a.pid
    WHERE (waits.pid IS NOT NULL OR kept.pid IS NOT NULL) AND a.pid NOT IN (SELECT pid FROM waits)
    GROUP BY a.pid, a.application_name, a.usename, a.state, a.xact_start ORDER BY a.pid`)
)

export const check: Check<SqlClient.SqlClient> = {
  group: "postgres",
  name: "locks",
  run: Effect.gen(function* () {
    const first = new Set((yield* look).map(({ transaction }) => transaction))
    if (first.size > 0) yield* Effect.sleep((yield* LockLimits).againMillis)
    const still = first.size === 0 ? [] : (yield* look).filter(({ transaction }) => first.has(transaction))
    return told(
      "no session keeps others waiting",
      still.map(({ application, pid, seconds, tables, waiting }) => ({
        problem:
          `process ${pid} (${application}) has a transaction open${seconds === null ? "" : ` for ${lasting(seconds)}`} that ` +
          [
            ...(tables === null ? [] : [`keeps writers from ${tables}`]),
            ...(waiting === 0 ? [] : [`${countOf(waiting, "other session")} ${waiting === 1 ? "waits" : "wait"} for`])
          ].join(", and that "),
        fix: "End the session, unless it is upkeep that soon ends; what it has not committed is rolled back",
        command: psql(`SELECT pg_terminate_backend(${pid})`)
      }))
    )
  })
}
