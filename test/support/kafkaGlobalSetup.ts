/**
 * Runs once before all test files: one Kafka for files that use `inject("kafkaBrokers")`, from the first source of this machine
 * (KafkaSource.ts). It takes three seconds and a JVM, so it is started only if a selected file needs it.
 */
import { Effect, Exit, Scope } from "effect"
import { readFile } from "node:fs/promises"
import type { TestProject } from "vitest/node"
import * as KafkaSource from "./KafkaSource.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** `host:port`, several with commas between them; null when there is none. */
    readonly kafkaBrokers: string | null
    /** Why there is no Kafka, in a sentence for the reader. */
    readonly kafkaMissing: string | null
  }
}

/** The command line's file filters. vitest does not expose them; without them every file counts. */
const filtersOf = (project: TestProject): Array<string> | undefined => {
  const pattern = (project.vitest as { readonly filenamePattern?: unknown }).filenamePattern
  return Array.isArray(pattern) ? pattern : undefined
}

const isWanted = async (project: TestProject): Promise<boolean> => {
  // A watching vitest may select other files later.
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
