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
