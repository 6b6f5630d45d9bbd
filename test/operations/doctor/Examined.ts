/** The doctor on a test's database: what `paid-once doctor` finds there, check by check. */
import { PgClient } from "@effect/sql-pg"
import { assert } from "@effect/vitest"
import { ConfigProvider, Effect, Exit, Layer, Redacted, Scope } from "effect"
import * as Config from "../../../src/Config.ts"
import * as Doctor from "../../../src/main/Doctor.ts"
import type { Scrape } from "../../../src/operations/doctor/MetricChecks.ts"
import { ScrapeFailed } from "../../../src/operations/doctor/MetricChecks.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

const unknown: Scrape = Effect.fail(new ScrapeFailed({ reason: "no process runs", wasNamed: false }))

/** All that the doctor finds with these variables. */
export const examine = (env: Readonly<Record<string, string>> = {}, scrape: Scrape = unknown) =>
  Effect.gen(function* () {
    const config = yield* Effect.provideService(
      Config.load,
      ConfigProvider.ConfigProvider,
      ConfigProvider.fromUnknown({ DATA_DIRECTORY: "/nowhere", ...env })
    )
    const report = yield* Doctor.examine(config, scrape)
    const of = (name: string) => {
      const check = report.checks.find((one) => one.name === name)
      assert.isDefined(check, name)
      return check
    }
    return { ...report, of }
  })

/** Runs the statements one by one on a session of their own, as the superuser. The session stays until the scope closes. */
export const session = (...statements: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const context = yield* Layer.build(
      Layer.fresh(
        PgClient.layer({ url: Redacted.make(Redacted.value(url)), maxConnections: 1, applicationName: "a stranger" })
      )
    )
    const sql = yield* Effect.provide(PgClient.PgClient, context)
    const scope = yield* Scope.make()
    yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
    const connection = yield* Scope.provide(sql.reserve, scope)
    for (const statement of statements) yield* connection.executeRaw(statement, [])
  })
