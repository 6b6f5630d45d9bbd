/**
 * Plants the mutant that `MUTANT` names in a process that a test starts: `node --import` this file. vitest's configuration plants it in the
 * test's own process only.
 */
import fs from "node:fs"
import { registerHooks, syncBuiltinESMExports } from "node:module"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { named, plant } from "./planted.ts"

const mutant = named()
if (mutant !== undefined) {
  const file = Path.resolve(import.meta.dirname, "../..", mutant.file)
  const { readFileSync } = fs
  registerHooks({
    load: (url, context, next) =>
      url.startsWith("file:") && fileURLToPath(url) === file
        ? { format: "module-typescript", source: plant(mutant, readFileSync(file, "utf8")), shortCircuit: true }
        : next(url, context)
  })
  if (mutant.file.startsWith("src/console/")) {
    // Code of the browser is no module of the process, which reads and serves it.
    const read = (path: fs.PathOrFileDescriptor, ...options: ReadonlyArray<never>) =>
      path === file
        ? Buffer.from(plant(mutant, readFileSync(file, "utf8")))
        : readFileSync(path, ...(options as unknown as []))
    fs.readFileSync = read as typeof readFileSync
    syncBuiltinESMExports()
  }
}
