/** The configuration of a service that a test starts in its own process, on the test's database. */
import { ConfigProvider, Effect, Redacted } from "effect"
import * as Config from "../../src/Config.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

export const load = Effect.gen(function* () {
  const { url } = yield* TestDatabase
  return yield* Effect.provide(
    Config.load,
    ConfigProvider.layer(
      ConfigProvider.fromUnknown({
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
        PORT: "0",
        LOG_LEVEL: "Warn"
      })
    )
  )
})
