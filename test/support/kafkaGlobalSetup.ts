/**
 * Runs once before all test files: one Kafka for those that ask for it with `inject("kafkaBrokers")`, from wherever this machine
 * has one (KafkaSource.ts). It takes three seconds and a JVM, so it is started only when a selected file asks.
 */
import { Effect, Exit, Scope } from "effect"
import { readFile } from "node:fs/promises"
import type { TestProject } from "vitest/node"
import * as KafkaSource from "./KafkaSource.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** `host:port`, several with commas between them; null when there is none. */
    readonly kafkaBrokers: string | null
    /** Why there is none, in a sentence for the person who runs the tests. */
    readonly kafkaMissing: string | null
  }
}

/** The command line's file filters. vitest keeps them to itself; without them every file counts. */
const filtersOf = (project: TestProject): Array<string> | undefined => {
  const pattern = (project.vitest as { readonly filenamePattern?: unknown }).filenamePattern
  return Array.isArray(pattern) ? pattern : undefined
}

const isWanted = async (project: TestProject): Promise<boolean> => {
  // Later runs of a watching vitest may select other files.
  if (project.config.watch) return true
  const { testFiles } = await project.globTestFiles(filtersOf(project))
  const sources = await Promise.all(testFiles.map((file) => readFile(file, "utf8")))
  return sources.some((source) => source.includes("kafkaBrokers"))
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const scope = Effect.runSync(Scope.make())
  const { brokers, missing } = !(await isWanted(project))
    ? { brokers: null, missing: "no selected test asks for it" }
    : await Effect.runPromise(
        Scope.provide(KafkaSource.acquire, scope).pipe(
          Effect.match({
            onSuccess: ({ bootstrapServers }) => ({ brokers: bootstrapServers, missing: null }),
            onFailure: ({ message }) => ({ brokers: null, missing: message })
          })
        )
      )
  project.provide("kafkaBrokers", brokers)
  project.provide("kafkaMissing", missing)
  return () => Effect.runPromise(Scope.close(scope, Exit.void))
}
