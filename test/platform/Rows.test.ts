/** Rows match their schema, or the statement dies with a defect that names the column. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Cause, Effect, Exit, Schema } from "effect"
import * as Rows from "../../src/platform/Rows.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const Line = Schema.Struct({ sku: Schema.String, quantity: Schema.Int })
const all = Rows.all(Line)
const first = Rows.first(Line)
const one = Rows.one(Line)

/** The defect of a statement whose rows don't match its schema. */
const defectOf = <E, R>(effect: Effect.Effect<unknown, E, R>) =>
  Effect.map(Effect.exit(effect), (exit) => {
    assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause), "it is a defect")
    return Exit.isFailure(exit) ? String(Cause.squash(exit.cause)) : ""
  })

layer(TestDatabase.layerPool, { excludeTestServices: true })("Rows", (it) => {
  it.effect("all rows, the first one, or the only one, as their schema has them", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const two = sql`SELECT sku, quantity FROM (VALUES ('mug', 2), ('cup', 1)) AS line(sku, quantity)`
      const none = sql`SELECT 'mug' AS sku, 1 AS quantity WHERE false`
      const lines = [
        { sku: "mug", quantity: 2 },
        { sku: "cup", quantity: 1 }
      ]
      assert.deepStrictEqual(yield* all(two), lines)
      assert.deepStrictEqual(yield* first(two), lines[0])
      assert.deepStrictEqual(yield* one(two), lines[0])
      assert.deepStrictEqual(yield* all(none), [])
      assert.isUndefined(yield* first(none))
    })
  )

  it.effect("a column of another type is a defect that names the column", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      // An int8 arrives as a bigint, and a numeric as text; schemas often get these wrong.
      for (const other of ["2::int8", "2::numeric", "NULL::int4"]) {
        const rows = sql`SELECT 'mug' AS sku, ${sql.literal(other)} AS quantity`
        for (const decoded of [all(rows), first(rows), one(rows)])
          assert.match(yield* defectOf(decoded), /quantity/, other)
      }
    })
  )

  it.effect("a column that was renamed is a defect that names the missing one", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      assert.match(yield* defectOf(first(sql`SELECT 'mug' AS sku, 2 AS amount`)), /quantity/)
    })
  )

  it.effect("a statement that always has a row, and has none, is a defect", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      yield* defectOf(one(sql`SELECT 'mug' AS sku, 1 AS quantity WHERE false`))
    })
  )

  it.effect("an error of the statement stays an error, for the caller to act on", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const error = yield* Effect.flip(first(sql`SELECT sku, quantity FROM nowhere`))
      assert.strictEqual(error._tag, "SqlError")
    })
  )
})
