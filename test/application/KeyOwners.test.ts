/** The upgrade that gives idempotency keys an owner, beside processes of the release before it. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrations from "../../src/postgres/Migrations.ts"
import * as OlderSchema from "../support/OlderSchema.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const [mechanism, business] = ["mechanism", "business"].map((name) => Migrations.setOf(root, name))

/** The claim of the release before: it knows no callers. */
const claimAsBefore = (key: string) =>
  SqlClient.SqlClient.use(
    (sql) => sql`
      INSERT INTO idempotency_keys (method, path, idempotency_key, body_hash, subject_id, created_at)
      VALUES ('POST', '/orders', ${key}, sha256(''), gen_random_uuid(), clock_now())
      ON CONFLICT DO NOTHING RETURNING idempotency_key`
  )

const claimAs = (caller: string, key: string, status: number) =>
  SqlClient.SqlClient.use(
    (sql) => sql`
      INSERT INTO idempotency_keys (caller, method, path, idempotency_key, body_hash, subject_id, created_at,
                                    response_status, response_body)
      VALUES (${caller}, 'POST', '/orders', ${key}, sha256(''), gen_random_uuid(), clock_now(), ${status}::int2, '{}')
      ON CONFLICT DO NOTHING RETURNING idempotency_key`
  )

it.live("keys from before an upgrade, and from older processes beside it, belong to the caller without a name", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const before = yield* OlderSchema.before("0106")
    const rowsOf = (effect: Effect.Effect<ReadonlyArray<unknown>, unknown, SqlClient.SqlClient>) =>
      Effect.map(effect, (rows) => rows.length)
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* Migrations.apply([mechanism!, before])
      assert.strictEqual(yield* rowsOf(claimAsBefore("old")), 1)
      assert.include(yield* Migrations.apply([mechanism!, business!]), "0106_idempotency_callers")

      assert.strictEqual(yield* rowsOf(claimAsBefore("old")), 0)
      assert.strictEqual(yield* rowsOf(claimAsBefore("beside")), 1)
      for (const key of ["old", "beside"]) {
        assert.strictEqual(yield* rowsOf(claimAs("anonymous", key, 201)), 0, key)
        assert.strictEqual(yield* rowsOf(claimAs("shop", key, 202)), 1, key)
        assert.strictEqual(yield* rowsOf(claimAs("shop", key, 202)), 0, key)
      }
      const callers = yield* sql<{ caller: string }>`SELECT caller FROM idempotency_keys ORDER BY caller`
      assert.deepStrictEqual(
        callers.map(({ caller }) => caller),
        ["anonymous", "anonymous", "shop", "shop"]
      )
      // A conflict is no final answer, and is not kept.
      const refused = yield* Effect.flip(claimAs("shop", "new", 409))
      assert.strictEqual((refused.reason.cause as { readonly code: string }).code, "23514")
    }).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1 }), { local: true }))
  }).pipe(Effect.scoped)
)
