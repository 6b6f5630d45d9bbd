/** Sequences that are behind their column: its next numbers were given before. A restore of the rows alone, or a switch-over by logical replication, leaves that. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { type Finding, psql } from "./Check.ts"

const sequences = Rows.all(
  Schema.Struct({ sequence: Schema.String, table: Schema.String, column: Schema.String, last: Schema.BigInt })
)
const largest = Rows.one(Schema.Struct({ largest: Schema.NullOr(Schema.BigInt) }))

/** The sequences of columns, with the last number of each. One that has given none yet is not behind, or its table is empty. */
const owned = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  sequences(sql`
    SELECT format('%I', s.sequencename) AS sequence, format('%I', t.relname) AS table, format('%I', a.attname) AS column, s.last_value AS last
    FROM pg_sequences AS s JOIN pg_class AS c ON c.oid = format('%I.%I', s.schemaname, s.sequencename)::regclass
    JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
    JOIN pg_class AS t ON t.oid = d.refobjid JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
    WHERE s.schemaname = current_schema() AND s.last_value IS NOT NULL ORDER BY 1`)
)

/** What of this there is. */
export const findings = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const found: Array<Finding> = []
  for (const { column, last, sequence, table } of yield* owned) {
    const { largest: most } = yield* largest(
      sql`SELECT max(${sql.literal(column)})::int8 AS largest FROM ${sql.literal(table)}`
    )
    if (most === null || most <= last) continue
    found.push({
      problem: `the sequence ${sequence} is at ${last}, and ${table} has ${column} up to ${most}: an insert fails, or its row takes an older one's place in the order`,
      fix: "Set it to the largest number that was given",
      command: psql(`SELECT setval('${sequence}', (SELECT max(${column}) FROM ${table}))`)
    })
  }
  return found
})
