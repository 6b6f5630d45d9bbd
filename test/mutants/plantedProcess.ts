/**
 * Plants the mutant that `MUTANT` names in a process that a test starts: `node --import` this file. vitest's configuration plants it in the
 * test's own process only.
 */
import fs, { readFileSync } from "node:fs"
import { registerHooks, syncBuiltinESMExports } from "node:module"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { named, plant } from "./planted.ts"

const read = readFileSync
const readText = (file: string) => read(file, "utf8")

const mutant = named()
if (mutant !== undefined) {
  const file = Path.resolve(import.meta.dirname, "../..", mutant.file)
  registerHooks({
    load: (url, context, next) =>
      url.startsWith("file:") && fileURLToPath(url) === file
        ? { format: "module-typescript", source: plant(mutant, readText(file)), shortCircuit: true }
        : next(url, context)
  })
  if (mutant.file.startsWith("src/console/")) {
    // The service reads these files as text, and the browser runs them.
    fs.readFileSync = ((path: string, ...options: ReadonlyArray<never>) =>
      path === file ? Buffer.from(plant(mutant, readText(file))) : read(path, ...options)) as typeof readFileSync
    syncBuiltinESMExports()
  }
}
