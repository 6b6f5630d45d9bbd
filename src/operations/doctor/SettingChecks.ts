/** The doctor's check of the settings of Postgres, with where each was given its value. */
import type { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import * as StartChecks from "../../postgres/StartChecks.ts"
import { type Check, psql, told } from "./Check.ts"

const sourceRow = Rows.one(Schema.Struct({ source: Schema.String, database: Schema.String, role: Schema.String }))

const reset = { fix: "Take it back, and restart the service: it holds for new sessions" }

/** Gives a setting its right value, where it was given the wrong one. */
const mended = Effect.fnUntraced(function* ({ name, value }: StartChecks.Setting) {
  const sql = yield* SqlClient.SqlClient
  const { database, role, source } = yield* sourceRow(sql`
    SELECT source, format('%I', current_database()) AS database, format('%I', current_user) AS role FROM pg_settings WHERE name = ${name}`)
  switch (source) {
    case "database":
      return { ...reset, command: psql(`ALTER DATABASE ${database} RESET ${name}`) }
    case "user":
      return { ...reset, command: psql(`ALTER ROLE ${role} RESET ${name}`) }
    case "database user":
      return { ...reset, command: psql(`ALTER ROLE ${role} IN DATABASE ${database} RESET ${name}`) }
    case "configuration file":
      return { fix: `Set it to ${value}, and reload the configuration`, command: altered(name, value) }
    default:
      return { fix: `Set it to ${value} where it was set: its source is the ${source}`, command: null }
  }
})

/** Sets what the server's file has otherwise, and has the server read it. */
export const altered = (name: string, value: string) =>
  `${psql(`ALTER SYSTEM SET ${name} = ${value}`)} -c "SELECT pg_reload_conf()"`

/** Ways of reading and joining that were switched off for all sessions. The service switches some off for its own, where it knows better. */
const plannerRows = Rows.all(Schema.Struct({ name: Schema.String }))

const given = Rows.all(
  Schema.Struct({
    name: Schema.String,
    value: Schema.String,
    database: Schema.NullOr(Schema.String),
    role: Schema.NullOr(Schema.String)
  })
)

/** Below it statements of the service may end: reconciliation, upkeep and a rebuild have some of seconds. */
const leastTimeoutSeconds = 60

/**
 * Settings of this database, or of a role in it, under which a session of the service fails, or reads its own statements otherwise. They are read where
 * they were given, for the doctor's own sessions have values of their own.
 */
const harmful = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  given(sql`
    WITH given AS (
      SELECT split_part(setting, '=', 1) AS name, substring(setting FROM position('=' IN setting) + 1) AS value,
             (SELECT format('%I', datname) FROM pg_database WHERE oid = setdatabase) AS database, (SELECT format('%I', rolname) FROM pg_roles WHERE oid = setrole) AS role
      FROM pg_db_role_setting, unnest(setconfig) AS setting
      WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND (setrole = 0 OR setrole = current_user::regrole
             OR setrole IN (SELECT usesysid FROM pg_stat_activity WHERE datname = current_database() AND usesysid IS NOT NULL))),
    timed AS (
      SELECT *, CASE WHEN name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
                     THEN extract(epoch FROM CASE WHEN value ~ '^\\d+$' THEN value || ' ms' ELSE value END::interval) END AS seconds
      FROM given)
    SELECT name, value, database, role FROM timed
    WHERE (seconds > 0 AND seconds < ${leastTimeoutSeconds}::int4) OR (name, value) IN (('standard_conforming_strings', 'off'), ('default_transaction_read_only', 'on'))
    ORDER BY name, database, role`)
)

const harm = (name: string): string =>
  name === "standard_conforming_strings"
    ? "the service's statements mean something else"
    : name === "default_transaction_read_only"
      ? "the service can write nothing"
      : `longer statements of the service fail, or lose their connection: give it ${leastTimeoutSeconds} s or more`

/** Durability, by the rules of the start: there each finding refuses the start or is logged once, here all are told. And the planner's means. */
export const settings: Check<PgClient.PgClient | SqlClient.SqlClient> = {
  group: "postgres",
  name: "settings",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const found = yield* StartChecks.settingFindings
    const off = yield* plannerRows(sql`
      SELECT name FROM pg_settings
      WHERE name LIKE 'enable\\_%' AND boot_val = 'on' AND setting = 'off' AND source NOT IN ('client', 'session')`)
    return told("version, durability, triggers and the planner are as the service needs them", [
      ...(yield* Effect.forEach(found, ({ sentence, setting }) =>
        setting === undefined
          ? Effect.succeed({ problem: sentence, fix: "Move the database to a newer Postgres", command: null })
          : Effect.map(mended(setting), (mending) => ({ problem: sentence, ...mending }))
      )),
      ...(yield* Effect.forEach(off, ({ name }) =>
        Effect.map(mended({ name, value: "on" }), (mending) => ({
          problem: `${name} is off: Postgres may read whole tables where an index has the rows, and no ANALYZE helps`,
          ...mending
        }))
      )),
      ...(yield* harmful).map(({ database, name, role, value }) => ({
        problem: `${name} is ${value} for ${[...(role === null ? [] : [`the role ${role}`]), ...(database === null ? [] : [`the database ${database}`])].join(" in ")}: ${harm(name)}`,
        ...reset,
        // psql's own session has the setting, too.
        command: psql(
          `BEGIN READ WRITE; ALTER ${role === null ? `DATABASE ${database}` : `ROLE ${role}${database === null ? "" : ` IN DATABASE ${database}`}`} RESET ${name}; COMMIT`
        )
      }))
    ])
  })
}
