/** The doctor's checks of upkeep: days are made ahead, and old days and finished tasks leave. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Retention from "../../platform/Retention.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { type Check, notChecked, psql, told } from "./Check.ts"

const group = "upkeep"

const days = Rows.all(
  Schema.Struct({
    table: Schema.String,
    aheadDays: Schema.NullOr(Schema.Finite),
    missingDays: Schema.Int,
    /** The statements that attach missing days, if their tables are there. */
    attach: Schema.NullOr(Schema.String),
    oldestDays: Schema.NullOr(Schema.Finite),
    hasStrays: Schema.Boolean
  })
)

/** Upkeep makes four days ahead, every ten minutes: with less than two it has not run for two days. */
const leastAheadDays = 2

/** A day is dropped once its youngest row is past the retention, an hour later at most. An outage of days moves rows to young days. */
const graceDays = 2

const maintenance = {
  fix: "Run a process with the role maintenance, or a round by hand",
  command: "npm run paid-once -- maintenance run"
}

const powerlessOwners = Rows.all(
  Schema.Struct({ owner: Schema.String, schema: Schema.String, database: Schema.String })
)

/** The owner of the function that makes days, where it may make no table. A restored database has the owner of whoever made it. */
const powerless = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  powerlessOwners(sql`
    SELECT quote_ident(pg_get_userbyid(proowner)) AS owner, quote_ident(current_schema()) AS schema, quote_ident(current_database()) AS database
    FROM pg_proc WHERE oid = 'make_daily_partition(text, date, integer)'::regprocedure
      AND NOT has_schema_privilege(proowner, current_schema(), 'CREATE')`)
)

const partitions: Check<SqlClient.SqlClient> = {
  group,
  name: "daily-partitions",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const noted = yield* Retention.noted
    const rows = yield* days(sql`
      SELECT t.name AS table, d."aheadDays", d."oldestDays", m."missingDays", m.attach,
             CASE t.name WHEN 'event_log' THEN EXISTS (SELECT FROM event_log_default)
                         ELSE EXISTS (SELECT FROM processed_events_default) END AS "hasStrays"
      FROM unnest('{event_log,processed_events}'::text[]) AS t(name),
           LATERAL (SELECT max(to_time) AS until, extract(epoch FROM max(to_time) - clock_now())::float8 / 86400 AS "aheadDays",
                           extract(epoch FROM clock_now() - min(to_time))::float8 / 86400 AS "oldestDays"
                    FROM time_partitions(t.name) WHERE NOT is_default) AS d,
           LATERAL (SELECT count(*)::int4 AS "missingDays",
                           string_agg(format('WITH moved AS (DELETE FROM %1$I WHERE event_id >= %2$L AND event_id < %3$L RETURNING *) INSERT INTO %4$I SELECT * FROM moved; '
                                             'ALTER TABLE %5$I ATTACH PARTITION %4$I FOR VALUES FROM (%2$L) TO (%3$L)', t.name || '_default', uuid_v7_floor(day.start::date),
                                             uuid_v7_floor(day.start::date + 1), t.name || to_char(day.start, '_YYYYMMDD'), t.name), '; ')
                             FILTER (WHERE to_regclass(t.name || to_char(day.start, '_YYYYMMDD')) IS NOT NULL) AS attach
                    FROM generate_series(date_trunc('day', clock_now() AT TIME ZONE 'UTC'), (d.until - interval '1 hour') AT TIME ZONE 'UTC', interval '1 day') AS day(start)
                    WHERE NOT EXISTS (SELECT FROM time_partitions(t.name) AS p
                                      WHERE NOT p.is_default AND p.from_time <= day.start AT TIME ZONE 'UTC' AND p.to_time > day.start AT TIME ZONE 'UTC')) AS m`)
    return told(
      rows.map(({ aheadDays, table }) => `${table} is made ${(aheadDays ?? 0).toFixed(0)} days ahead`).join(", "),
      [
        ...(yield* powerless).map(({ database, owner, schema }) => ({
          problem: `no day can be made, and no migration runs: ${owner}, who owns the tables, may make none in the schema ${schema}`,
          fix: "Make it the owner of the database, as docs/hardening.md does; who restores a database names its owner: docs/restore.md",
          command: psql(`ALTER DATABASE ${database} OWNER TO ${owner}`)
        })),
        ...rows.flatMap(({ aheadDays, attach, hasStrays, missingDays, oldestDays, table }) => {
          // Nothing goes where no process of the service has noted it.
          const kept = noted.get(table)?.days ?? 0
          return [
            ...((aheadDays ?? -1) < leastAheadDays
              ? [
                  {
                    ...maintenance,
                    problem: `upkeep does not run: the partitions of ${table} end ${aheadDays === null ? "nowhere" : `in ${aheadDays.toFixed(1)} days`}, and four days are made ahead`
                  }
                ]
              : []),
            ...(missingDays > 0
              ? [
                  {
                    ...(attach === null
                      ? maintenance
                      : {
                          fix: "Attach its table, with the rows of that day that came to the default partition meanwhile",
                          command: psql(attach)
                        }),
                    problem: `${table} lacks ${countOf(missingDays, "day")} between today and its last one: a table of that day was ${attach === null ? "dropped" : "detached"}`
                  }
                ]
              : []),
            ...(kept > 0 && oldestDays !== null && oldestDays > kept + graceDays
              ? [
                  {
                    ...maintenance,
                    problem: `old days stay: ${table} has one that ended ${oldestDays.toFixed(0)} days ago, and they are kept for ${kept}`
                  }
                ]
              : []),
            ...(hasStrays
              ? [
                  {
                    ...maintenance,
                    problem: `rows of ${table} are in its default partition: no partition of their day was there when they came`
                  }
                ]
              : [])
          ]
        })
      ]
    )
  })
}

const finishedRow = Rows.one(Schema.Struct({ oldestDays: Schema.NullOr(Schema.Finite) }))

const finished: Check<SqlClient.SqlClient> = {
  group: "tasks",
  name: "finished-rows-leave",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const taskDays = (yield* Retention.noted).get("outbox_tasks")?.days
    if (taskDays === undefined)
      return notChecked("no process of the service has noted how long it keeps finished tasks")
    if (taskDays === 0)
      return notChecked("TASK_RETENTION_DAYS is 0: finished tasks are kept for ever, as was asked for")
    // The first entry of outbox_tasks_done.
    const { oldestDays } = yield* finishedRow(sql`
      SELECT extract(epoch FROM clock_now() - (
        SELECT finished_at FROM outbox_tasks WHERE state IN ('completed', 'cancelled') ORDER BY finished_at LIMIT 1))::float8 / 86400 AS "oldestDays"`)
    return told(
      oldestDays === null
        ? "no finished task is there"
        : `the oldest finished task is ${oldestDays.toFixed(1)} days old`,
      (oldestDays ?? 0) > taskDays + 1
        ? [
            {
              ...maintenance,
              problem: `finished tasks stay: the oldest is ${oldestDays!.toFixed(0)} days old, and they are kept for ${taskDays} (TASK_RETENTION_DAYS)`
            }
          ]
        : []
    )
  })
}

export const checks: ReadonlyArray<Check<SqlClient.SqlClient>> = [partitions, finished]
