/** An upgrade of a database with data in it, while older processes write to it. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Migrations from "../../src/postgres/Migrations.ts"
import { examine } from "../operations/doctor/Examined.ts"
import * as OlderSchema from "../support/OlderSchema.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const [mechanism, business] = ["mechanism", "business"].map((name) => Migrations.setOf(root, name))

/** One payment of each kind that the rules before 0106 know, each of an order of its own, and a key with each answer. */
const populate = SqlClient.SqlClient.use((sql) =>
  Effect.gen(function* () {
    yield* sql`
      WITH kinds (id, status, captured, refunded, reason, refund_begun) AS (
        SELECT gen_random_uuid(), v.* FROM (VALUES
          ('charging', 0, 0, NULL, false), ('captured', 100, 0, NULL, false), ('declined', 0, 0, 'no funds', false),
          ('manual', 0, 0, NULL, false), ('manual', 100, 0, NULL, true), ('refunding', 100, 0, NULL, true),
          ('refunded', 100, 100, NULL, true)) AS v),
      placed AS (
        INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
        SELECT id, 'ada', 'EUR', 'pending', 1, 100, clock_now(), clock_now() FROM kinds)
      INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, refunded_minor,
                            decline_reason, refund_begun_at, leased_until, created_at, updated_at)
      SELECT id, id, status, 'pm_ok', 100, 'EUR', captured, refunded, reason, CASE WHEN refund_begun THEN clock_now() END,
             clock_now(), clock_now(), clock_now()
      FROM kinds`
    yield* sql`
      INSERT INTO idempotency_keys (method, path, idempotency_key, body_hash, subject_id, response_status, response_body, created_at)
      SELECT 'POST', '/orders', 'key ' || n, sha256(''), gen_random_uuid(), status, CASE WHEN status > 0 THEN '{}' END, clock_now()
      FROM unnest(ARRAY[200, 201, 402, NULL]::int2[]) WITH ORDINALITY AS given (status, n)`
  })
)

const payments = SqlClient.SqlClient.use(
  (sql) => sql`
    SELECT id, order_id, status, captured_minor, refunded_minor, decline_reason, refund_begun_at FROM payments ORDER BY id`
)
const keys = SqlClient.SqlClient.use(
  (sql) => sql`SELECT idempotency_key, response_status, response_body FROM idempotency_keys ORDER BY 1`
)
const unchecked = SqlClient.SqlClient.use((sql) => sql`SELECT conname FROM pg_constraint WHERE NOT convalidated`)
const codeOf = (error: { readonly reason: { readonly cause: unknown } }) =>
  (error.reason.cause as { readonly code: string }).code

it.live(
  "a database with data from before 0106 is upgraded to the newest, row by row the same, and every rule holds for all rows",
  () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.make("template0")
      const older = yield* OlderSchema.before("0106")
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* Migrations.apply([mechanism!, older])
        yield* populate
        const was = [yield* payments, yield* keys]
        assert.deepStrictEqual(
          was.map((rows) => rows.length),
          [7, 4]
        )
        yield* Migrations.apply([mechanism!, business!])
        assert.deepStrictEqual([yield* payments, yield* keys], was)
        assert.deepStrictEqual(yield* unchecked, [])
        const { of } = yield* Effect.provide(examine(), DatabaseSettings.layerOf({ url }))
        for (const name of ["indexes", "constraints", "tables", "functions"]) {
          assert.deepInclude(of(name), { outcome: "ok", findings: [] })
        }
        // What 0107 and 0108 allow, and what no release does.
        yield* sql`UPDATE payments SET status = 'manual' WHERE status = 'captured'`
        yield* sql`UPDATE payments SET status = 'refunding', captured_minor = 100, refund_begun_at = clock_now() WHERE status = 'declined'`
        assert.strictEqual(
          codeOf(yield* Effect.flip(sql`UPDATE payments SET decline_reason = 'no' WHERE status = 'charging'`)),
          "23514"
        )
      }).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1 }), { local: true }))
    }).pipe(Effect.scoped)
)

it.live("the rules are checked while payments are written: no writer waits, and none is waited for", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const older = yield* OlderSchema.before("0109")
    const connection = PgClient.layer({ url, maxConnections: 1 })
    const migrate = Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`SET lock_timeout = '10s'`
      return yield* Migrations.apply([mechanism!, business!])
    }).pipe(Effect.provide(connection, { local: true }))
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* Migrations.apply([mechanism!, older])
      yield* populate
      // A writer whose transaction is open for as long as the migration takes.
      const applied = yield* sql.withTransaction(
        Effect.andThen(
          Effect.andThen(
            sql`UPDATE payments SET updated_at = clock_now()`,
            sql`UPDATE idempotency_keys SET created_at = clock_now()`
          ),
          migrate
        )
      )
      assert.include(applied, "0109_validated_rules")
      assert.deepStrictEqual(yield* unchecked, [])
    }).pipe(Effect.provide(connection, { local: true }))
  }).pipe(Effect.scoped)
)
