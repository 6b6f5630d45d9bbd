/**
 * The doctor's check of indexes: each one that the migrations make is there, as they make it, and valid.
 *
 * `indexes.txt` beside the migrations has their definitions as Postgres writes them. test/operations/doctor/Indexes.test.ts holds it.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, type Finding, psql, told } from "./Check.ts"
import * as Expected from "./Expected.ts"

const allIndexes = Rows.all(Schema.Struct({ name: Schema.String, definition: Schema.String, isValid: Schema.Boolean }))

/** The indexes of this schema, but for those of single days and of the histories of migrations. Without the schema's name. */
export const found = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  allIndexes(sql`
    SELECT c.relname AS name, i.indisvalid AND i.indisready AS "isValid",
           regexp_replace(pg_get_indexdef(i.indexrelid), ' ON (ONLY )?\\S+ USING', ' ON \\1' || t.relname || ' USING') AS definition
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS t ON t.oid = i.indrelid
    WHERE t.relnamespace = current_schema()::regnamespace AND NOT t.relispartition AND t.relkind IN ('r', 'p')
      AND t.relname NOT LIKE 'migrations\\_%'
    ORDER BY t.relname, c.relname`)
)

/** `CREATE [UNIQUE] INDEX name ON …` */
const nameIn = (definition: string): string => / INDEX (\S+) ON /.exec(definition)?.[1] ?? definition

/** Postgres makes and drops none concurrently of a table with partitions. */
const isOfPartitions = (definition: string) => definition.includes(" ON ONLY ")
const meanwhile = (definition: string) =>
  isOfPartitions(definition) ? "whoever writes the table waits meanwhile" : "the table is written meanwhile"

/** The statement that makes it, beside writers where that can be. */
const made = (definition: string): string =>
  isOfPartitions(definition)
    ? definition.replace(" ON ONLY ", " ON ")
    : definition.replace(" INDEX ", " INDEX CONCURRENTLY ")

/** What is wrong with the index of this definition, given all that there are. */
const findingOf = (
  definition: string,
  indexes: ReadonlyMap<string, { readonly definition: string; readonly isValid: boolean }>
): Finding | undefined => {
  const name = nameIn(definition)
  const there = indexes.get(name)
  if (there === undefined) {
    return {
      problem: `the index ${name} is missing: its statements read whole tables, and a rule that it enforces does not hold`,
      fix: `Make it; ${meanwhile(definition)}`,
      command: psql(made(definition))
    }
  }
  if (!there.isValid) {
    return {
      problem: `the index ${name} is invalid: it costs every write, and no statement uses it`,
      fix: "Build it anew; a CREATE INDEX CONCURRENTLY was interrupted, or met a row that breaks its rule",
      command: psql(`REINDEX INDEX CONCURRENTLY ${name}`)
    }
  }
  if (there.definition === definition) return undefined
  return {
    problem: `the index ${name} is another one: ${there.definition}`,
    fix: `Drop it, and make it as the migrations do; ${meanwhile(definition)}. One that belongs to a constraint goes and comes with its constraint`,
    command:
      psql(`DROP INDEX ${isOfPartitions(definition) ? "" : "CONCURRENTLY "}${name}`) + " && " + psql(made(definition))
  }
}

export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "indexes",
  run: Effect.gen(function* () {
    const indexes = new Map((yield* found).map((index) => [index.name, index]))
    const expected = yield* Expected.linesOf(sets, "indexes.txt")
    return told(
      `${expected.length} indexes are there and valid`,
      expected.flatMap(({ line }) => findingOf(line, indexes) ?? [])
    )
  })
})
