/**
 * Tables on which a statement does not do, or does not keep, what it says: switched-off triggers, rules, row-level security, no write-ahead log, no
 * autovacuum. No migration makes any of them.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { type Finding, psql } from "./Check.ts"

const tables = Rows.all(Schema.Struct({ table: Schema.String, triggers: Schema.String }))

/** The tables with triggers that do not fire. Those of foreign keys are among them. */
const switchedOff = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  tables(sql`
    SELECT t.relname AS table, string_agg(g.tgname, ', ' ORDER BY g.tgname) AS triggers
    FROM pg_trigger AS g JOIN pg_class AS t ON t.oid = g.tgrelid
    WHERE t.relnamespace = current_schema()::regnamespace AND g.tgenabled IN ('D', 'R') GROUP BY 1 ORDER BY 1`)
)

const ofSwitchedOff = ({ table, triggers }: { readonly table: string; readonly triggers: string }): Finding => ({
  problem: `triggers of ${table} are switched off (${triggers}): what they set and refuse is neither set nor refused`,
  fix: "Switch them on as the database's superuser, and look at the rows that were written meanwhile",
  command: psql(`ALTER TABLE ${table} ENABLE TRIGGER ALL`)
})

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
    SELECT quote_ident(relname) AS table, NULL AS rule FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relrowsecurity
    UNION ALL
    SELECT quote_ident(relname), quote_ident(rulename) FROM pg_rewrite JOIN pg_class ON pg_class.oid = ev_class
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

/** What of this there is. */
export const findings = Effect.gen(function* () {
  return [
    ...(yield* switchedOff).map(ofSwitchedOff),
    ...(yield* unkept).map(ofUnkept),
    ...(yield* hindered).map(ofHindered)
  ]
})
