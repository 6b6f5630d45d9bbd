/**
 * The doctor's check that each table is there. It comes before those of indexes, constraints and columns, whose fixes would be for another table, or
 * fail: they wait.
 */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { MigrationSet } from "../../postgres/Migrations.ts"
import { type Check, psql, told } from "./Check.ts"
import * as Expected from "./Expected.ts"
import { columnIn, found } from "./TableChecks.ts"

/** The columns of each table. */
const columnsOf = (statements: ReadonlyArray<string>) =>
  Map.groupBy(
    statements.map(columnIn).filter(({ table }) => table !== ""),
    ({ table }) => table
  )

export const check = (sets: ReadonlyArray<MigrationSet>): Check<SqlClient.SqlClient> => ({
  group: "schema",
  name: "missing-tables",
  mendFirst: true,
  run: Effect.gen(function* () {
    const ours = columnsOf((yield* Expected.linesOf(sets, "tables.txt")).map(({ line }) => line))
    const there = columnsOf((yield* found).map(({ statement }) => statement))
    const strange = [...there].filter(([table]) => !ours.has(table))
    const gone = [...ours].filter(([table]) => !there.has(table))
    return told(
      `${ours.size} tables are there`,
      gone.map(([table, columns]) => {
        const renamed = strange.find(([, others]) =>
          columns.every(({ column }) => others.some((other) => other.column === column))
        )?.[0]
        return {
          problem: `the table ${table} is gone: statements that name it fail`,
          fix:
            renamed === undefined
              ? "Rename it back if it has got another name; otherwise its rows are in a backup (docs/restore.md)"
              : `${renamed} has its columns: if it is the same under another name, rename it back; otherwise its rows are in a backup (docs/restore.md)`,
          command: renamed === undefined ? null : psql(`ALTER TABLE ${renamed} RENAME TO ${table}`)
        }
      })
    )
  })
})
