/** What vitest's configuration has in addition where the environment names a mutant (`MUTANT`): its mistake, planted as the source is loaded. */
import * as Path from "node:path"
import type { ViteUserConfig } from "vitest/config"
import { mutants } from "./mutants.ts"

export const planted = (): ViteUserConfig => {
  const name = process.env["MUTANT"]
  if (name === undefined) return {}
  const mutant = mutants.find((one) => one.name === name)
  if (mutant === undefined) throw new Error(`there is no mutant ${name}`)
  return {
    // It goes by the file's text: the sound one would come back.
    test: { fsModuleCache: false },
    plugins: [
      {
        name: "mutant",
        enforce: "pre",
        transform(code, id) {
          if (id !== Path.resolve(mutant.file)) return undefined
          const places = code.split(mutant.find).length - 1
          if (places !== 1) throw new Error(`${mutant.file} has ${places} places for the mutant ${name}`)
          return { code: code.replace(mutant.find, () => mutant.replace), map: null }
        }
      }
    ]
  }
}
