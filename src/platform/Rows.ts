/**
 * Rows as a schema says they are. A statement's result is unknown until its schema has decoded it, so a renamed column or another
 * type is a defect that names the column, at the statement, and not `undefined` somewhere behind it.
 *
 * A few hot statements say `sql<Row>` instead, each with its reason beside it: lint refuses that without one.
 */
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"

/** A statement, or anything else that gives rows. */
type Rows<R> = Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError, R>

/** A decoder of all rows of a statement. Made once, where its schema is, and not for each call. */
export const all = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row))
  return <R>(statement: Rows<R>): Effect.Effect<ReadonlyArray<A>, SqlError.SqlError, R> =>
    Effect.flatMap(statement, (rows) => Effect.orDie(decode(rows)))
}

/** A decoder of a statement's first row; undefined where there is none. */
export const first = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(row)
  return <R>(statement: Rows<R>): Effect.Effect<A | undefined, SqlError.SqlError, R> =>
    Effect.flatMap(statement, ([one]) => (one === undefined ? Effect.undefined : Effect.orDie(decode(one))))
}

/** A decoder of the one row that a statement always has, as an aggregate without GROUP BY does. */
export const one = <A, I>(row: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownEffect(row)
  return <R>(statement: Rows<R>): Effect.Effect<A, SqlError.SqlError, R> =>
    Effect.flatMap(statement, ([only]) => Effect.orDie(decode(only)))
}
