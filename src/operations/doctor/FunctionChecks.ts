/**
 * The doctor's check of functions: each one does what the migrations wrote. Triggers, identifiers and daily partitions rest on them.
 *
 * `functions.txt` beside the migrations has the statements that make them. test/operations/doctor/Indexes.test.ts holds it. Postgres 15 to 18 write
 * them alike.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Path from "node:path"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, psqlFile, told } from "./Check.ts"
import * as Expected from "./Expected.ts"

const statements = Rows.all(Schema.Struct({ statement: Schema.String }))

/**
 * The statements that make the functions of this schema, in the order in which they were made: one may call an earlier one. A function with the owner's
 * rights is not for PUBLIC.
 */
export const found = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    statements(sql`
      SELECT rtrim(replace(pg_get_functiondef(p.oid), format('FUNCTION %I.', current_schema()), 'FUNCTION '), E'\\n') || ';' || CASE WHEN p.prosecdef
             THEN format(E'\\nREVOKE ALL ON FUNCTION %I(%s) FROM PUBLIC;', p.proname, pg_get_function_identity_arguments(p.oid)) ELSE '' END AS statement
      FROM pg_proc AS p
      WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind <> 'a'
        -- An extension brings its own.
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
      ORDER BY p.oid`),
    (rows) => rows.map(({ statement }) => statement)
  )
)

const file = "functions.txt"

/** In the file: no line of a function's body begins so. */
const between = /\n(?=CREATE OR REPLACE )/

const nameOf = (statement: string) => /^CREATE OR REPLACE FUNCTION (.*)/.exec(statement)?.[1] ?? ""

/** The check, of what these migrations make. */
export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "functions",
  run: Effect.gen(function* () {
    const all = yield* found
    const [there, names] = [new Set(all), new Set(all.map(nameOf))]
    const expected = yield* Expected.linesOf(sets, file, between)
    const owner = yield* Expected.owner
    return told(
      `${expected.length} functions are as the migrations make them`,
      expected
        .filter(({ line }) => !there.has(line))
        .map(({ line, set }) => {
          const name = nameOf(line)
          const isThere = names.has(name)
          return {
            problem: `the function ${name} is ${isThere ? "another one" : "missing"}: what it sets, refuses or makes is not as the code expects`,
            fix: "Make all of them again, and look at the rows that were written meanwhile",
            // A function may have its owner's rights, so it must not become the superuser's. The path is that of the project's directory, where npm run works, too.
            command: psqlFile(
              `${isThere ? `ALTER FUNCTION ${name} OWNER TO ${owner}; ` : ""}SET ROLE ${owner}`,
              `migrations/${Path.basename(set.directory)}/${file}`
            )
          }
        })
    )
  })
})
