/**
 * Rows decoded by a schema. A column that is missing, or has another type, is a defect at the statement that names the column; without a decoder it
 * would be `undefined` somewhere later.
 *
 * A few hot statements use `sql<Row>` instead, with the reason beside them: lint refuses it without one.
 */
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"

/** A statement, or another effect that gives rows. */
type Rows<R> = Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError, R>

/** Makes a decoder of all rows of a statement. To be made once, beside its schema. */
export const all = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row))
  return <R>(statement: Rows<R>): Effect.Effect<ReadonlyArray<A>, SqlError.SqlError, R> =>
    Effect.flatMap(statement, (rows) => Effect.orDie(decode(rows)))
}

/** A page of a list. `nextCursor` is where the next page begins; null on the last page. */
export interface Page<A, Cursor extends string = string> {
  readonly items: ReadonlyArray<A>
  readonly nextCursor: Cursor | null
}

/** A page: of rows, of which one more than `limit` was asked for, which tells whether there is a next page. */
export const pageBy = <A, Cursor extends string>(
  found: ReadonlyArray<A>,
  limit: number,
  cursorOf: (item: A) => Cursor
): Page<A, Cursor> => {
  const items = found.slice(0, limit)
  const last = items.at(-1)
  return { items, nextCursor: found.length > limit && last !== undefined ? cursorOf(last) : null }
}

/** {@link pageBy}, where an item's cursor is its id. */
export const page = <A extends { readonly id: string }>(found: ReadonlyArray<A>, limit: number): Page<A, A["id"]> =>
  pageBy(found, limit, ({ id }) => id)

/** Makes a decoder of a statement's first row, which is undefined where there is none. */
export const first = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(row)
  return <R>(statement: Rows<R>): Effect.Effect<A | undefined, SqlError.SqlError, R> =>
    Effect.flatMap(statement, ([one]) => (one === undefined ? Effect.undefined : Effect.orDie(decode(one))))
}

/** Makes a decoder of the row of a statement that always has one, like an aggregate without GROUP BY. */
export const one = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(row)
  return <R>(statement: Rows<R>): Effect.Effect<A, SqlError.SqlError, R> =>
    Effect.flatMap(statement, ([only]) => Effect.orDie(decode(only)))
}
