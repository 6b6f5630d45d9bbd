/**
 * The mutant that the variable `MUTANT` names. vitest's configuration plants its mistake when the source is loaded. If the mistake is in a
 * migration, the test's database gets it.
 */
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import type { ViteUserConfig } from "vitest/config"
import { type Mutant, mutants } from "./mutants.ts"

/** The mutant of this run, if it has one. */
export const named = (): Mutant | undefined => {
  const name = process.env["MUTANT"]
  if (name === undefined) return undefined
  const mutant = mutants.find((one) => one.name === name)
  if (mutant === undefined) throw new Error(`there is no mutant ${name}`)
  return mutant
}

/** The source with the mistake. */
export const plant = (mutant: Mutant, code: string): string => {
  const places = code.split(mutant.find).length - 1
  if (places !== 1) throw new Error(`${mutant.file} has ${places} places for the mutant ${mutant.name}`)
  return code.replace(mutant.find, () => mutant.replace)
}

/**
 * The view or function of a migration that contains the mutant's place, with the mistake, as a statement for a migrated database. A
 * definition is a paragraph: blank lines surround it, and it contains none.
 */
export const plantedSql = (): string | undefined => {
  const mutant = named()
  if (mutant === undefined || !mutant.file.endsWith(".sql")) return undefined
  const definitions = readFileSync(mutant.file, "utf8").split(/\n{2,}/)
  const definition = definitions.find((one) => one.includes(mutant.find)) ?? ""
  return plant(mutant, definition).replace(/^CREATE (?=VIEW|FUNCTION)/m, "CREATE OR REPLACE ")
}

/** Variables with which a process of the service starts with the mistake: vitest plants it in the test's own process only. */
export const plantedEnv = (): Readonly<Record<string, string>> => {
  const mutant = named()
  const hook = Path.resolve(import.meta.dirname, "plantedProcess.ts")
  return mutant === undefined ? {} : { MUTANT: mutant.name, NODE_OPTIONS: `--import ${hook}` }
}

export const planted = (): ViteUserConfig => {
  const mutant = named()
  if (mutant === undefined) return {}
  return {
    // The cache is keyed by the file's text, so it would return the code without the mistake.
    test: { fsModuleCache: false },
    plugins: [
      {
        name: "mutant",
        enforce: "pre",
        transform(code, id) {
          if (id !== Path.resolve(mutant.file)) return undefined
          return { code: plant(mutant, code), map: null }
        }
      }
    ]
  }
}
