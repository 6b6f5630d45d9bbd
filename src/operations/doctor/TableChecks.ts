/**
 * The doctor's check of tables: their triggers, the columns that are NOT NULL, defaults and storage parameters are as the migrations make them. No
 * trigger and no autovacuum is switched off, and every table outlives a crash.
 *
 * `tables.txt` beside the migrations has a statement for each. test/operations/doctor/Indexes.test.ts holds it.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, type Finding, psql, told } from "./Check.ts"
import * as IndexChecks from "./IndexChecks.ts"

const statements = Rows.all(Schema.Struct({ statement: Schema.String }))

/** A statement for each property of this schema's tables. `attnotnull`, for only newer versions of Postgres have NOT NULL as a constraint. */
export const found = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    statements(sql`
      WITH tables AS (
        SELECT oid, relname, reloptions FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND NOT relispartition AND relkind IN ('r', 'p')
          AND relname NOT LIKE 'migrations\\_%'),
      columns AS (
        SELECT t.relname, a.*, format('ALTER TABLE %I ALTER COLUMN %I SET', t.relname, a.attname) AS setting
        FROM tables AS t JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped)
      SELECT statement FROM (
        SELECT relname, setting || ' NOT NULL' AS statement FROM columns WHERE attnotnull
        UNION ALL
        SELECT relname, setting || ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) FROM columns
        JOIN pg_attrdef AS d ON d.adrelid = attrelid AND d.adnum = attnum WHERE attgenerated = ''
        UNION ALL
        SELECT relname, format('ALTER TABLE %I SET (%s)', relname, parameter) FROM tables, unnest(reloptions) AS parameter
        UNION ALL
        SELECT t.relname, regexp_replace(pg_get_triggerdef(g.oid), ' ON \\S+ ', format(' ON %I ', t.relname))
        FROM tables AS t JOIN pg_trigger AS g ON g.tgrelid = t.oid WHERE NOT g.tgisinternal) AS properties
      ORDER BY relname, statement`),
    (rows) => rows.map(({ statement }) => statement)
  )
)

const tables = Rows.all(Schema.Struct({ table: Schema.String, triggers: Schema.String }))

/** The tables with triggers that do not fire. Those of foreign keys are among them. */
const switchedOff = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  tables(sql`
    SELECT t.relname AS table, string_agg(g.tgname, ', ' ORDER BY g.tgname) AS triggers
    FROM pg_trigger AS g JOIN pg_class AS t ON t.oid = g.tgrelid
    WHERE t.relnamespace = current_schema()::regnamespace AND g.tgenabled IN ('D', 'R') GROUP BY 1 ORDER BY 1`)
)

const unkeptTables = Rows.all(Schema.Struct({ table: Schema.String, unlogged: Schema.Boolean }))

/** Tables, and partitions, that a crash empties or that autovacuum passes over. */
const unkept = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  unkeptTables(sql`
    SELECT relname AS table, relpersistence = 'u' AS unlogged FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
      AND (relpersistence = 'u'
           OR EXISTS (SELECT FROM pg_options_to_table(reloptions) WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean))
    ORDER BY relname`)
)

const ofUnkept = ({ table, unlogged }: { readonly table: string; readonly unlogged: boolean }): Finding =>
  unlogged
    ? {
        problem: `${table} is UNLOGGED: a crash empties it, and no backup or standby has it`,
        fix: "Make it logged; it is written anew while all others wait",
        command: psql(`ALTER TABLE ${table} SET LOGGED`)
      }
    : {
        problem: `autovacuum is switched off for ${table}: its dead rows stay, and each look at it becomes slower`,
        fix: "Switch it on",
        command: psql(`ALTER TABLE ${table} RESET (autovacuum_enabled)`)
      }

const hindrances = Rows.all(Schema.Struct({ table: Schema.String, rule: Schema.NullOr(Schema.String) }))

/** Tables with row-level security, or with a rule: no migration makes either, and both change what a statement does, without an error. */
const hindered = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  hindrances(sql`
    SELECT relname AS table, NULL AS rule FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relrowsecurity
    UNION ALL
    SELECT relname, rulename FROM pg_rewrite JOIN pg_class ON pg_class.oid = ev_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
    ORDER BY 1, 2`)
)

const ofHindered = ({ rule, table }: { readonly table: string; readonly rule: string | null }): Finding =>
  rule === null
    ? {
        problem: `row-level security is on for ${table}: whoever does not own it sees only the rows that a policy shows, and without one none`,
        fix: "Switch it off, and compare the books: reconcile",
        command: psql(`ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY`)
      }
    : {
        problem: `${table} has the rule ${rule}, which no migration makes: it puts another statement in the place of the service's`,
        fix: "Drop it, start the service's processes again, for their sessions may keep it, and compare the books: reconcile",
        command: psql(`DROP RULE ${rule} ON ${table}`)
      }

const missing = (statement: string): Finding => {
  const [, table, column, property = ""] = /^ALTER TABLE (\S+) (?:ALTER COLUMN (\S+) )?SET (.*)$/.exec(statement) ?? []
  const command = psql(statement)
  if (table === undefined) {
    return {
      problem: `a trigger is missing, or another one: ${statement}`,
      fix: "Make it, and look at the rows that were written meanwhile: they lack what it sets",
      command: psql(statement.replace("CREATE TRIGGER", "CREATE OR REPLACE TRIGGER"))
    }
  }
  if (column === undefined) {
    return {
      problem: `the storage parameters of ${table} lack ${property}: its dead rows stay longer, or its rows find no room beside them`,
      fix: "Set it; it holds for what is written from then on",
      command
    }
  }
  return {
    problem: `the column ${column} of ${table} lacks ${property}: rows without a value are taken, or have another one`,
    fix: "Set it; it reads the table while writers wait, and fails where a row has no value",
    command
  }
}

/** The check, of what these migrations make. */
export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "tables",
  run: Effect.gen(function* () {
    const there = new Set(yield* found)
    const expected = (yield* Effect.forEach(sets, (set) => IndexChecks.linesOf(set, "tables.txt"))).flat()
    return told(`${expected.length} properties of tables are as the migrations make them`, [
      ...(yield* switchedOff).map(({ table, triggers }) => ({
        problem: `triggers of ${table} are switched off (${triggers}): what they set and refuse is neither set nor refused`,
        fix: "Switch them on as the database's superuser, and look at the rows that were written meanwhile",
        command: psql(`ALTER TABLE ${table} ENABLE TRIGGER ALL`)
      })),
      ...(yield* unkept).map(ofUnkept),
      ...(yield* hindered).map(ofHindered),
      ...expected.filter((statement) => !there.has(statement)).map(missing)
    ])
  })
})
