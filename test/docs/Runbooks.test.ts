/** Each alert says how bad it is and where its page is; each page has its parts, and commands and statements that exist. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import { TestDatabase } from "../support/TestDatabase.ts"
import { root, rules } from "./AlertRules.ts"

/** The alerts that the service promises by name, whatever else there is. */
const promised = [
  "OutboxOldestEventTooOld",
  "OutboxEventsBacklog",
  "OutboxBacklogGrowing",
  "OutboxDeadLetters",
  "OutboxBatchSlow",
  "OutboxQueueBacklog",
  "OutboxHighErrorRate",
  "OutboxSlowProcessing",
  "OutboxStuckTasks",
  "ReconciliationDifference"
]

const folder = Path.join(root, "docs/runbooks")
const pages = readdirSync(folder).map((file) => ({
  name: Path.basename(file, ".md"),
  text: readFileSync(Path.join(folder, file), "utf8")
}))
/** The blocks of code in a language, of all pages. */
const blocks = (language: string) =>
  pages.flatMap(({ name, text }) =>
    [...text.matchAll(/^```(\w+)\n([^]*?)^```/gm)].flatMap(([, kind, code = ""]) =>
      kind === language ? [{ name, code }] : []
    )
  )

it("every promised alert has a rule, and every rule says how bad it is, what it is, and where its page is", () => {
  const names = rules.map(({ alert }) => alert)
  assert.includeMembers(names, promised)
  assert.strictEqual(new Set(names).size, names.length)
  for (const { alert, annotations, expr, forMinutes, severity } of rules) {
    assert.include(["critical", "warning"], severity, alert)
    assert.isAtLeast(expr.length, 10, alert)
    assert.isNotNaN(forMinutes, alert)
    assert.isAtLeast(annotations["summary"]!.length, 10, alert)
    assert.isAtLeast(annotations["description"]!.length, 30, alert)
    assert.strictEqual(annotations["runbook_url"], `docs/runbooks/${alert}.md`)
  }
})

it("every rule has a page, and every page has its parts in at most 40 lines", () => {
  assert.sameMembers(
    pages.map(({ name }) => name),
    rules.map(({ alert }) => alert)
  )
  for (const { name, text } of pages) {
    assert.deepStrictEqual(
      [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading),
      [name, "What it means", "First look", "Mend", "How to see that it is mended"]
    )
    assert.isAtMost(text.trimEnd().split("\n").length, 40, name)
  }
})

it("every command of a page is one of the reference", () => {
  const reference = readFileSync(Path.join(root, "docs/reference.md"), "utf8")
  const used = blocks("sh").flatMap(({ code, name }) =>
    [...code.matchAll(/paid-once -- ([a-z]+ [a-z]+)/g)].map(([, command]) => ({ name, command: command! }))
  )
  assert.isAbove(used.length, 10)
  assert.deepStrictEqual(
    used.filter(({ command }) => !reference.includes(`\n### ${command}\n`)),
    []
  )
})

it("a page about what a person decides names the console's page for it, and each that is named exists", () => {
  const named = pages.flatMap(({ name, text }) =>
    [...text.matchAll(/`(\/console\/[a-z-]+)/g)].map(([, path]) => ({ name, path: path! }))
  )
  const menu = readFileSync(Path.join(root, "src/console/pages.js"), "utf8")
  const paths = new Set([...menu.matchAll(/path: "(.*?)"/g)].map(([, path]) => path))
  assert.deepStrictEqual(
    named.filter(({ path }) => !paths.has(path)),
    []
  )
  for (const name of ["InboxDeadLetters", "InboxGaps", "OutboxDeadLetters", "OutboxTasksDead", "PaymentsManual"]) {
    assert.isTrue(
      named.some((one) => one.name === name),
      name
    )
  }
})

it.live("every statement of a page can be planned", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const statements = blocks("sql").flatMap(({ code, name }) =>
      code
        .split(";\n")
        .map((one) => one.trim().replaceAll("'ID'", "'0190c5d0-9b6b-7b3e-8d2b-0a1b2c3d4e5f'"))
        .filter((one) => one !== "")
        .map((statement) => ({ name, statement }))
    )
    assert.isAbove(statements.length, 10)
    for (const { name, statement } of statements) {
      const planned = yield* Effect.result(sql.unsafe(`EXPLAIN ${statement}`))
      assert.strictEqual(planned._tag, "Success", `${name}: ${statement}`)
    }
  }).pipe(Effect.provide(TestDatabase.layerPool))
)
