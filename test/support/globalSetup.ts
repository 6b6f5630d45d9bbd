/** Runs once before all test files: a real Postgres for this run, with a migrated template that each test file clones. */
import { Effect, Exit, Scope } from "effect"
import type { TestProject } from "vitest/node"
import * as Postgres from "./Postgres.ts"

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const scope = Effect.runSync(Scope.make())
  const url = await Effect.runPromise(Scope.provide(Postgres.acquire, scope))
  project.provide("postgresUrl", url)
  // Beside the URL of a run around this one (test/mutants): its template will do.
  const given = process.env["TEST_TEMPLATE_DATABASE"]
  const migrated = Effect.suspend(() => (given === undefined ? Postgres.migrated(url) : Effect.succeed(given)))
  project.provide("templateDatabase", await Effect.runPromise(Scope.provide(migrated, scope)))
  return () => Effect.runPromise(Scope.close(scope, Exit.void))
}
