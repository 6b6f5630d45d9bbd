/** The business migrations as an older release had them. */
import { Effect } from "effect"
import { cp, readdir, rm } from "node:fs/promises"
import * as Path from "node:path"
import * as Migrations from "../../src/postgres/Migrations.ts"
import { root, TestDatabase } from "./TestDatabase.ts"

/** The set without the file of this number, `0106`, and the later ones. */
export const before = Effect.fnUntraced(function* (number: string) {
  const business = Migrations.setOf(root, "business")
  const directory = Path.join(yield* TestDatabase.dataDirectory, `before-${number}`)
  yield* Effect.promise(async () => {
    await cp(business.directory, directory, { recursive: true })
    const files = (await readdir(directory)).filter((name) => name >= number)
    await Promise.all(files.map((name) => rm(Path.join(directory, name))))
  })
  return { ...business, directory }
})
