/**
 * Plants the mutant that `MUTANT` names in a process that a test starts: `node --import` this file. vitest's configuration plants it in the
 * test's own process only.
 */
import { readFileSync } from "node:fs"
import { registerHooks } from "node:module"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { named, plant } from "./planted.ts"

const mutant = named()
if (mutant !== undefined) {
  const file = Path.resolve(import.meta.dirname, "../..", mutant.file)
  registerHooks({
    load: (url, context, next) =>
      url.startsWith("file:") && fileURLToPath(url) === file
        ? { format: "module-typescript", source: plant(mutant, readFileSync(file, "utf8")), shortCircuit: true }
        : next(url, context)
  })
}
