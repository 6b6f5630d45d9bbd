/**
 * The doctor's check of constraints: each one that the migrations make is there, with its rule. An index that is made anew does not bring back the
 * constraint that it belonged to. Whether it holds for all rows is told by the check of the schema's version.
 *
 * `constraints.txt` beside the migrations has their definitions. test/operations/doctor/Indexes.test.ts holds it. Postgres 15 to 18 write them alike.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, type Finding, psql, told } from "./Check.ts"
import * as Expected from "./Expected.ts"
import * as IndexChecks from "./IndexChecks.ts"

const allConstraints = Rows.all(Schema.Struct({ definition: Schema.String }))

/** The constraints of this schema's tables, as IndexChecks finds their indexes, and of its domains. Columns that are NOT NULL are none here. */
export const found = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  allConstraints(sql`
    -- A line each: Postgres writes a CASE on several.
    SELECT format('ALTER %s ADD CONSTRAINT %I %s', coalesce('TABLE ' || quote_ident(t.relname), 'DOMAIN ' || quote_ident(y.typname)), c.conname,
                  regexp_replace(pg_get_constraintdef(c.oid), '\\s*\\n\\s*', ' ', 'g')) AS definition
    FROM pg_constraint AS c LEFT JOIN pg_class AS t ON t.oid = c.conrelid LEFT JOIN pg_type AS y ON y.oid = c.contypid
    WHERE c.connamespace = current_schema()::regnamespace AND c.contype IN ('c', 'f', 'p', 'u')
      AND (y.oid IS NOT NULL OR NOT t.relispartition AND t.relkind IN ('r', 'p') AND t.relname NOT LIKE 'migrations\\_%')
    ORDER BY coalesce(t.relname, y.typname), c.conname`)
)

/** `ALTER TABLE table ADD CONSTRAINT name …`, or of a domain. `alters` is its beginning. */
const namesIn = (definition: string) => {
  const [, alters = "", table = "", name = "", rule = ""] =
    /^(ALTER (?:TABLE|DOMAIN) (\S+)) ADD CONSTRAINT (\S+) (.*)$/.exec(definition) ?? []
  return { table, name, rule, alters }
}
const keyOf = (definition: string) => Object.values(namesIn(definition)).slice(0, 2).join(" ")

/** A rule is first made for new rows. Postgres allows that of checks and foreign keys. */
const notValidYet = (definition: string) => (/^(PRIMARY KEY|UNIQUE)/.test(namesIn(definition).rule) ? "" : " NOT VALID")

const missing = (definition: string, indexes: ReadonlyMap<string, string>): Finding => {
  const { alters, name, table } = namesIn(definition)
  const problem = `the constraint ${name} of ${table} is missing: rows that break its rule are taken`
  if (notValidYet(definition) !== "") {
    return {
      problem,
      fix: `Add it for new rows, and then ${alters} VALIDATE CONSTRAINT ${name}, beside writers`,
      command: psql(definition + notValidYet(definition))
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

const another = (definition: string, there: string): Finding => {
  const { alters, name, table } = namesIn(definition)
  return {
    problem: `the constraint ${name} of ${table} has another rule: ${namesIn(there).rule}`,
    fix: `Put its rule in the place of the other one for new rows, and then ${alters} VALIDATE CONSTRAINT ${name}, beside writers`,
    command: psql(`${alters} DROP CONSTRAINT ${name}; ${definition}${notValidYet(definition)}`)
  }
}

export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "constraints",
  run: Effect.gen(function* () {
    const there = new Map((yield* found).map(({ definition }) => [keyOf(definition), definition]))
    const indexes = new Map((yield* IndexChecks.found).map(({ definition, name }) => [name, definition]))
    const expected = yield* Expected.linesOf(sets, "constraints.txt")
    return told(
      `${expected.length} constraints are there`,
      expected.flatMap(({ line: definition }) => {
        const one = there.get(keyOf(definition))
        if (one === undefined) return [missing(definition, indexes)]
        return one.replace(/ NOT VALID$/, "") === definition ? [] : [another(definition, one)]
      })
    )
  })
})
