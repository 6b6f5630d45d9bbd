/**
 * The doctor's check of constraints: each one that the migrations make is there, and holds for all rows. An index that is made anew does not bring back
 * the constraint that it belonged to.
 *
 * `constraints.txt` beside the migrations has their definitions. test/operations/doctor/Indexes.test.ts holds it. Only names are compared: Postgres
 * versions write some expressions differently.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, type Finding, psql, told } from "./Check.ts"
import * as IndexChecks from "./IndexChecks.ts"

const allConstraints = Rows.all(Schema.Struct({ definition: Schema.String, isValid: Schema.Boolean }))

/** The constraints of this schema's tables, as IndexChecks finds their indexes. Columns that are NOT NULL are none here. */
export const found = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  allConstraints(sql`
    SELECT c.convalidated AS "isValid",
           -- A line each: Postgres writes a CASE on several.
           format('ALTER TABLE %I ADD CONSTRAINT %I %s', t.relname, c.conname,
                  regexp_replace(pg_get_constraintdef(c.oid), '\\s*\\n\\s*', ' ', 'g')) AS definition
    FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = c.conrelid
    WHERE t.relnamespace = current_schema()::regnamespace AND NOT t.relispartition AND t.relkind IN ('r', 'p')
      AND t.relname NOT LIKE 'migrations\\_%' AND c.contype IN ('c', 'f', 'p', 'u')
    ORDER BY t.relname, c.conname`)
)

/** `ALTER TABLE table ADD CONSTRAINT name …` */
const namesIn = (definition: string) => {
  const [, table = "", name = "", rule = ""] = /^ALTER TABLE (\S+) ADD CONSTRAINT (\S+) (.*)$/.exec(definition) ?? []
  return { table, name, rule }
}
const keyOf = (definition: string) => Object.values(namesIn(definition)).slice(0, 2).join(" ")

const missing = (definition: string, indexes: ReadonlyMap<string, string>): Finding => {
  const { name, rule, table } = namesIn(definition)
  const problem = `the constraint ${name} of ${table} is missing: rows that break its rule are taken`
  if (!/^(PRIMARY KEY|UNIQUE)/.test(rule)) {
    return {
      problem,
      fix: `Add it for new rows, and then ALTER TABLE ${table} VALIDATE CONSTRAINT ${name}, beside writers`,
      command: psql(`${definition} NOT VALID`)
    }
  }
  const index = indexes.get(name)
  if (index === undefined) return { problem, fix: "Make its index first, and look again", command: null }
  // Postgres takes no index for a constraint of a table with partitions.
  const isOfPartitions = index.includes(" ON ONLY ")
  return {
    problem,
    fix: isOfPartitions
      ? "Drop its index, and make both; whoever writes the table waits meanwhile"
      : "Add it by its index",
    command: isOfPartitions
      ? psql(`DROP INDEX ${name}`) + " && " + psql(definition)
      : psql(definition.replace(/ (PRIMARY KEY|UNIQUE) .*$/, ` $1 USING INDEX ${name}`))
  }
}

const notValid = (definition: string): Finding => {
  const { name, table } = namesIn(definition)
  return {
    problem: `the constraint ${name} of ${table} is not validated: older rows may break its rule`,
    fix: "Validate it, beside writers; it names a row that breaks the rule",
    command: psql(`ALTER TABLE ${table} VALIDATE CONSTRAINT ${name}`)
  }
}

export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "constraints",
  run: Effect.gen(function* () {
    const there = new Map((yield* found).map((one) => [keyOf(one.definition), one.isValid]))
    const indexes = new Map((yield* IndexChecks.found).map(({ definition, name }) => [name, definition]))
    const expected = (yield* Effect.forEach(sets, (set) => IndexChecks.linesOf(set, "constraints.txt"))).flat()
    return told(
      `${expected.length} constraints are there`,
      expected.flatMap((definition) => {
        const isValid = there.get(keyOf(definition))
        if (isValid === undefined) return [missing(definition, indexes)]
        return isValid || definition.endsWith(" NOT VALID") ? [] : [notValid(definition)]
      })
    )
  })
})
