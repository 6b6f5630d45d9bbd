/** Each mutant matches exactly one place in the source, and its test exists. `npm run mutants` plants them. */
import { assert, it } from "vitest"
import { readFile } from "node:fs/promises"
import * as Path from "node:path"
import { root } from "../support/Postgres.ts"
import { mutants } from "./mutants.ts"

const textOf = (file: string) => readFile(Path.join(root, file), "utf8")

it("every mutant has one place in the source, and a test", async () => {
  for (const { file, find, name, seenBy } of mutants) {
    assert.strictEqual((await textOf(file)).split(find).length - 1, 1, `${name}: places in ${file}`)
    assert.notInclude(seenBy.test, "${", `${name}: no title says this when the test runs`)
    // The title of a parameterised test contains the name of its case.
    assert.include(await textOf(seenBy.file), seenBy.test.split(/outbox[._]/)[0]!, `${name}: its test`)
  }
  assert.strictEqual(new Set(mutants.map(({ name }) => name)).size, mutants.length)
})
