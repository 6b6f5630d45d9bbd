/** Runs once before all test files: unpacks one Chromium (BrowserSource.ts) if a selected file drives a browser. It takes two seconds. */
import { Effect, Exit, Scope } from "effect"
import { readFile } from "node:fs/promises"
import type { TestProject } from "vitest/node"
import * as BrowserSource from "./BrowserSource.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** The Chromium of this run; null when there is none. */
    readonly browserSource: BrowserSource.BrowserSource | null
    /** Why there is no Chromium, in a sentence for the reader. */
    readonly browserMissing: string | null
  }
}

/** The command line's file filters, as in kafkaGlobalSetup.ts. */
const filtersOf = (project: TestProject): Array<string> | undefined => {
  const pattern = (project.vitest as { readonly filenamePattern?: unknown }).filenamePattern
  return Array.isArray(pattern) ? pattern : undefined
}

const isWanted = async (project: TestProject): Promise<boolean> => {
  if (project.config.watch) return true
  const { testFiles } = await project.globTestFiles(filtersOf(project))
  const sources = await Promise.all(testFiles.map((file) => readFile(file, "utf8")))
  return sources.some((source) => source.includes("support/Browser.ts"))
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const scope = Effect.runSync(Scope.make())
  const { missing, source } = !(await isWanted(project))
    ? { source: null, missing: "no selected test asks for it" }
    : await Effect.runPromise(
        Scope.provide(BrowserSource.acquire, scope).pipe(
          Effect.match({
            onSuccess: (source) => ({ source, missing: null }),
            onFailure: ({ message }) => ({ source: null, missing: message })
          })
        )
      )
  project.provide("browserSource", source)
  project.provide("browserMissing", missing)
  return () => Effect.runPromise(Scope.close(scope, Exit.void))
}
