/** Runs once before all test files: a real Postgres for this run, with a migrated template that each test file clones. */
import { Effect, Exit, Scope } from "effect"
import type { TestProject } from "vitest/node"
import * as Postgres from "./Postgres.ts"

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const scope = Effect.runSync(Scope.make())
  const url = await Effect.runPromise(Scope.provide(Postgres.acquire, scope))
  project.provide("postgresUrl", url)
  project.provide("templateDatabase", await Effect.runPromise(Scope.provide(Postgres.migrated(url), scope)))
  return () => Effect.runPromise(Scope.close(scope, Exit.void))
}
