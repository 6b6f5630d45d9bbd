/**
 * The statements of a rebuild on its projection's tables: that they are alike, the emptying of the `rebuilt` ones, and the swap.
 *
 * The swap changes rows and not names. With `ALTER TABLE … RENAME` a reader whose snapshot is older than the rebuild would find the new table under the
 * name, and see it as empty: the rows came after its snapshot. And it would need the rights of the tables' owner, and break views.
 */
import { Effect, Schema } from "effect"
import { SqlError } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { Projection, ProjectionTable } from "./Projection.ts"

/** Rows that one transaction deletes: some milliseconds. */
export const cleanRows = 5_000

/**
 * How long the swap waits for a table: its lock stands in front of the consumer's slices. It is longer than a usual slice, and the consumer's delay is
 * not worth a word.
 */
const lockTimeout = "1s"

/** How many rows of a table the swap has changed: all that the rebuild has corrected. */
export interface Corrected {
  readonly table: string
  /** Rows of keys that the new table has not. */
  readonly removed: number
  /** Rows of keys that the old table had not. */
  readonly added: number
  /** Rows that both have, with other values. */
  readonly changed: number
}

const counted = Rows.one(Schema.Struct({ count: Schema.Int }))
const countedGone = Rows.one(Schema.Struct({ removed: Schema.Int, changed: Schema.Int }))
const compared = Rows.one(Schema.Struct({ alike: Schema.Boolean }))

/** Whether both tables of each pair have the same columns in the same order. A migration has to change both. */
export const areAlike = (projection: Projection) =>
  Effect.gen(function* () {
    const { sql } = yield* Transaction
    const columns = (table: string) => sql`
      (SELECT array_agg(attname || ' ' || format_type(atttypid, atttypmod) ORDER BY attnum) FROM pg_attribute
       WHERE attrelid = to_regclass(quote_ident(${table})) AND attnum > 0 AND NOT attisdropped)`
    for (const { live, rebuilt } of projection.tables) {
      const { alike } = yield* compared(sql`SELECT coalesce(${columns(live)} = ${columns(rebuilt)}, false) AS alike`)
      if (!alike) return false
    }
    return true
  })

/** Deletes up to {@link cleanRows} rows of each `rebuilt` table. Returns how many. */
export const clean = Effect.fnUntraced(function* (projection: Projection) {
  const { sql } = yield* Transaction
  let deleted = 0
  for (const { rebuilt } of projection.tables) {
    const { count } = yield* counted(sql`
      WITH gone AS (DELETE FROM ${sql(rebuilt)} WHERE ctid = ANY(ARRAY(SELECT ctid FROM ${sql(rebuilt)} LIMIT ${cleanRows})) RETURNING 1)
      SELECT count(*)::int4 AS count FROM gone`)
    deleted += count
  }
  return deleted
})

/** The swap can't be made now. Its transaction rolls back, lets the consumer go on, and is tried again. */
export class Busy extends Schema.TaggedError<Busy>()("Busy", {}) {}

/**
 * Locks the live tables until the transaction ends: against writers and those that read FOR UPDATE, not against readers.
 *
 * All slices that have written a table have committed then, with their cursors. All others wait before they write, and add to the rows that the swap
 * leaves.
 */
const lockLive = Effect.fnUntraced(function* (projection: Projection) {
  const { sql } = yield* Transaction
  yield* sql`SELECT set_config('lock_timeout', ${lockTimeout}, true)`
  for (const { live } of projection.tables) yield* sql`LOCK TABLE ${sql(live)} IN EXCLUSIVE MODE`
})

/** Makes the rows of the live table those of the rebuilt one. Rows that are equal stay as they are. */
const replace = Effect.fnUntraced(function* ({ key, live, rebuilt }: ProjectionTable) {
  const { sql } = yield* Transaction
  const sameKey = sql.and(key.map((column) => sql`old.${sql(column)} = new.${sql(column)}`))
  const { changed, removed } = yield* countedGone(sql`
    WITH gone AS (
      DELETE FROM ${sql(live)} AS old
      WHERE NOT EXISTS (SELECT FROM ${sql(rebuilt)} AS new WHERE ${sameKey} AND ROW(new.*) IS NOT DISTINCT FROM ROW(old.*))
      RETURNING EXISTS (SELECT FROM ${sql(rebuilt)} AS new WHERE ${sameKey}) AS is_changed)
    SELECT count(*) FILTER (WHERE NOT is_changed)::int4 AS removed, count(*) FILTER (WHERE is_changed)::int4 AS changed FROM gone`)
  const { count } = yield* counted(sql`
    WITH new_rows AS (
      INSERT INTO ${sql(live)}
      SELECT new.* FROM ${sql(rebuilt)} AS new WHERE NOT EXISTS (SELECT FROM ${sql(live)} AS old WHERE ${sameKey})
      RETURNING 1)
    SELECT count(*)::int4 AS count FROM new_rows`)
  return { table: live, removed, added: count - changed, changed } satisfies Corrected
})

/**
 * In the present transaction: locks the live tables, lets `last` fill in what is left, and makes the live tables equal to the rebuilt ones. Fails with
 * {@link Busy} where a transaction that writes a live table does not end in time.
 */
export const run = <A, E>(projection: Projection, last: Effect.Effect<A, E, Transaction>) =>
  Effect.gen(function* () {
    yield* lockLive(projection)
    const filled = yield* last
    return { filled, tables: yield* Effect.forEach(projection.tables, replace) }
  }).pipe(
    Effect.catchIf(
      (error) => SqlError.isSqlError(error) && error.reason._tag === "LockTimeoutError",
      () => Effect.fail(new Busy())
    )
  )
