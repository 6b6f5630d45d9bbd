/** docs/reference.md agrees with the code. */
import { assert, it } from "@effect/vitest"
import { readFile } from "node:fs/promises"
import { path, reference } from "./reference.ts"

it("docs/reference.md agrees with the code, or `npm run reference` must write it", async () => {
  const page = await reference()
  // If a source were not found, the page would be empty, and equal to an empty file.
  for (const word of ["DATABASE_URL", "outbox_dead_letters", "dispatcher.after-publish", "--roles"]) {
    assert.include(page, word)
  }
  assert.strictEqual(await readFile(path, "utf8"), page)
})
