/**
 * The doctor's check of functions: each one does what the migrations wrote. Triggers, identifiers and daily partitions rest on them.
 *
 * `functions.txt` beside the migrations has a line for each, with a digest of its body. test/operations/doctor/Indexes.test.ts holds it.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, told } from "./Check.ts"
import * as IndexChecks from "./IndexChecks.ts"

const lines = Rows.all(Schema.Struct({ line: Schema.String }))

/** The functions of this schema, as `name(arguments) digest`. A function with the owner's rights has other rights, so that counts. */
export const found = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    lines(sql`
      SELECT format('%s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid),
                    md5(concat_ws(' ', p.prosrc, p.prosecdef, p.provolatile, array_to_string(p.proconfig, ' ')))) AS line
      FROM pg_proc AS p
      WHERE p.pronamespace = current_schema()::regnamespace
        -- An extension brings its own.
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
      ORDER BY 1`),
    (rows) => rows.map(({ line }) => line)
  )
)

const nameOf = (line: string) => line.slice(0, line.lastIndexOf(" "))

/** The check, of what these migrations make. */
export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "functions",
  run: Effect.gen(function* () {
    const all = yield* found
    const [there, names] = [new Set(all), new Set(all.map(nameOf))]
    const expected = (yield* Effect.forEach(sets, (set) => IndexChecks.linesOf(set, "functions.txt"))).flat()
    return told(
      `${expected.length} functions are as the migrations make them`,
      expected
        .filter((line) => !there.has(line))
        .map(nameOf)
        .map((name) => ({
          problem: `the function ${name} is ${names.has(name) ? "another one" : "missing"}: what it sets, refuses or makes is not as the code expects`,
          fix: "Run its CREATE OR REPLACE FUNCTION again, from the last migration that has it, and look at the rows that were written meanwhile",
          command: `grep -l 'FUNCTION ${name.slice(0, name.indexOf("("))}' migrations/*/*.sql`
        }))
    )
  })
})
