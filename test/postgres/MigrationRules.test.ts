/**
 * A migration only expands (migrations/README.md): the former release goes on beside it. Nothing that it uses is taken away, and no row that it
 * writes is refused. Whether it really goes on is seen by test/e2e/TwoReleases.test.ts.
 */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import { root } from "../support/Postgres.ts"

/** The last file of each baseline: a database begins with all of them. */
const baselines: Readonly<Record<string, number>> = { mechanism: 111, business: 105, sandbox: 101 }

/** Files that contract, each with the release that used it last. */
const contracts: Readonly<Record<string, string>> = {}

const rules: ReadonlyArray<readonly [rule: string, breaks: RegExp]> = [
  [
    "a table, view, type or function goes",
    /\bDROP\s+(TABLE|VIEW|MATERIALIZED\s+VIEW|TYPE|DOMAIN|FUNCTION|SCHEMA|SEQUENCE)\b/i
  ],
  ["a column goes", /\bDROP\s+COLUMN\b/i],
  ["a table, view or column gets another name", /\bALTER\s+(TABLE|VIEW)\b[^;]*\bRENAME\b/i],
  ["a column gets another type, which rewrites the table", /\bALTER\s+COLUMN\s+\w+\s+(SET\s+DATA\s+)?TYPE\b/i],
  ["a column that the former release leaves empty must not be empty", /\bALTER\s+COLUMN\s+\w+\s+SET\s+NOT\s+NULL\b/i],
  ["a default goes, on which the former release relies", /\bALTER\s+COLUMN\s+\w+\s+DROP\s+DEFAULT\b/i],
  [
    "a new column that the former release does not know must have a value",
    /\bADD\s+COLUMN\s+(IF\s+NOT\s+EXISTS\s+)?\w+\s+(?=[^,;]*\bNOT\s+NULL\b)(?![^,;]*\bDEFAULT\b)/i
  ],
  [
    "a constraint is checked for all rows under a lock: NOT VALID first",
    /\bADD\s+CONSTRAINT\s+\w+\s+(CHECK|FOREIGN\s+KEY)\b(?![^;]*\bNOT\s+VALID\b)/i
  ],
  ["rows are rewritten while payments wait", /(^|;)\s*(UPDATE|DELETE)\b/i]
]

const brokenBy = (text: string) => {
  const statements = text.replaceAll(/--[^\n]*/g, "")
  return rules.flatMap(([rule, breaks]) => (breaks.test(statements) ? [rule] : []))
}

describe("a migration", () => {
  it("only expands, unless it is listed as one that contracts", () => {
    const broken = Object.entries(baselines).flatMap(([set, last]) =>
      readdirSync(Path.join(root, "migrations", set))
        .filter((file) => Number(file.slice(0, 4)) > last && !(`${set}/${file}` in contracts))
        .flatMap((file) =>
          brokenBy(readFileSync(Path.join(root, "migrations", set, file), "utf8")).map(
            (rule) => `${set}/${file}: ${rule}`
          )
        )
    )
    assert.deepStrictEqual(broken, [])
  })

  it("that would break the former release is seen", () => {
    for (const bad of [
      "DROP TABLE orders",
      "ALTER TABLE orders DROP COLUMN currency",
      "ALTER TABLE orders RENAME COLUMN currency TO money",
      "ALTER TABLE orders RENAME TO sales",
      "ALTER TABLE orders ALTER COLUMN version TYPE bigint",
      "ALTER TABLE orders ALTER COLUMN note SET NOT NULL",
      "ALTER TABLE orders ALTER COLUMN note DROP DEFAULT",
      "ALTER TABLE orders ADD COLUMN channel text NOT NULL",
      "ALTER TABLE orders ADD COLUMN IF NOT EXISTS channel text NOT NULL CHECK (channel <> '')",
      "ALTER TABLE orders ADD CONSTRAINT total CHECK (total_amount_minor > 0)",
      "CREATE TABLE more (id uuid);\nUPDATE orders SET version = version"
    ])
      assert.lengthOf(brokenBy(bad), 1, bad)
    for (const good of [
      "ALTER TABLE orders ADD COLUMN channel text NOT NULL DEFAULT 'web', ADD COLUMN note text",
      "ALTER TABLE orders ADD CONSTRAINT total CHECK (total_amount_minor > 0) NOT VALID",
      "CREATE TABLE more (id uuid NOT NULL REFERENCES orders ON DELETE CASCADE)",
      "ALTER INDEX a RENAME TO b; DROP INDEX c",
      "-- DROP TABLE orders\nCREATE INDEX d ON orders (id)"
    ])
      assert.deepStrictEqual(brokenBy(good), [], good)
  })
})
