/** Each mutant matches exactly one place in the source, and its test exists. `npm run mutants` plants them. */
import { assert, it } from "vitest"
import { readdir, readFile } from "node:fs/promises"
import * as Path from "node:path"
import { root } from "../support/Postgres.ts"
import { mutants } from "./mutants.ts"

const textOf = (file: string) => readFile(Path.join(root, file), "utf8")

/** The test's file, and those of `cases/` beside it. */
const textsOf = async (file: string) => {
  const cases = Path.join(Path.dirname(file), "cases")
  const names = await readdir(Path.join(root, cases)).catch(() => [])
  return (await Promise.all([file, ...names.map((name) => Path.join(cases, name))].map(textOf))).join("\n")
}

it("every mutant has one place in the source, and a test", async () => {
  for (const { file, find, name, seenBy } of mutants) {
    assert.strictEqual((await textOf(file)).split(find).length - 1, 1, `${name}: places in ${file}`)
    assert.notInclude(seenBy.test, "${", `${name}: no title says this when the test runs`)
    // The title of a parameterised test contains the name of its case.
    assert.include(await textsOf(seenBy.file), seenBy.test.split(/outbox[._]/)[0]!, `${name}: its test`)
  }
  assert.strictEqual(new Set(mutants.map(({ name }) => name)).size, mutants.length)
})
