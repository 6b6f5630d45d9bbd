import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** A separate pool, which connects when it is first used. */
const pool = Layer.fresh(
  Layer.unwrap(TestDatabase.useSync(({ url }) => Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url })))))
)

it.live("a transaction is read committed, whatever the database's default is", () =>
  Effect.gen(function* () {
    const { name } = yield* TestDatabase
    yield* SqlClient.SqlClient.use(
      (sql) => sql`ALTER DATABASE ${sql(name)} SET default_transaction_isolation = 'repeatable read'`
    ).pipe(Effect.provide(pool))
    const [row] = yield* Transaction.run(
      Effect.flatMap(
        Transaction,
        ({ sql }) => sql<{ readonly level: string }>`
        SELECT current_setting('transaction_isolation') AS level`
      )
    ).pipe(Effect.provide(pool))
    assert.strictEqual(row?.level, "read committed")
  }).pipe(Effect.provide(TestDatabase.layer))
)
