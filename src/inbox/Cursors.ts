/**
 * How far each consumer is with each aggregate: the version that it has applied last. Cursors know no time window, so they catch a duplicate
 * that comes when the inbox has long forgotten the event's id.
 */
import { Context, Effect, Layer } from "effect"
import { SqlError } from "effect/sql"
import { Transaction } from "../platform/Transaction.ts"
import type { Subscriber } from "./Subscriber.ts"

/** An aggregate, as its events name it. The type of one whose record can't be read is not known: all that have the id are meant. */
export interface Aggregate {
  readonly aggregateType: string | undefined
  readonly aggregateId: string
}

/** The aggregate as the key of a map. */
export const keyOf = ({ aggregateId, aggregateType = "" }: Aggregate): string =>
  `${aggregateType.length} ${aggregateType}${aggregateId}`

/** What a consumer knows of an aggregate. */
export interface Place {
  /** Applied last; undefined for an aggregate that it has not heard of. */
  readonly version: number | undefined
  /** Whether the aggregates with this id are held, as this statement saw it. */
  readonly isHeld: boolean
}

/** A cursor's step. */
export interface Move {
  readonly aggregateType: string
  readonly aggregateId: string
  readonly from: number | undefined
  readonly to: number
}

/** What a version is to a consumer: `behind` is a duplicate, `next` is to be applied, `ahead` leaves a gap. */
export const compare = (
  firstSight: Subscriber["firstSight"],
  cursor: number | undefined,
  version: number
): "behind" | "next" | "ahead" => {
  if (cursor === undefined && firstSight === "any-version") return "next"
  const expected = (cursor ?? 0) + 1
  return version < expected ? "behind" : version === expected ? "next" : "ahead"
}

export class Cursors extends Context.Service<
  Cursors,
  {
    /** Where the consumer is with these aggregates, by {@link keyOf}. */
    readonly read: (
      consumer: string,
      aggregates: ReadonlyArray<Aggregate>
    ) => Effect.Effect<ReadonlyMap<string, Place>, never, Transaction>
    /**
     * Whether all versions of the aggregate behind `after` and before `before` were given up by an operator before they were ever sent.
     * Nobody sends them: there is nothing to wait for.
     */
    readonly givenUp: (
      topic: string,
      aggregate: Aggregate,
      after: number,
      before: number
    ) => Effect.Effect<boolean, never, Transaction>
    /**
     * Moves each aggregate's cursor from where it was seen. Where another transaction has moved one meanwhile, this one loses: it is rolled
     * back and run again, and sees what the other did. So an aggregate's events are applied one after the other, whoever else is at them.
     */
    readonly advance: (consumer: string, moves: ReadonlyArray<Move>) => Effect.Effect<void, never, Transaction>
  }
>()("paid-once/inbox/Cursors") {
  static readonly layer: Layer.Layer<Cursors> = Layer.succeed(Cursors, {
    read: Effect.fnUntraced(function* (consumer: string, aggregates: ReadonlyArray<Aggregate>) {
      const { sql } = yield* Transaction
      const rows = yield* sql<{ readonly at: bigint; readonly version: number | null; readonly isHeld: boolean }>`
        SELECT a.at, (
                 SELECT max(c.version) FROM consumer_cursors AS c
                 WHERE c.consumer_name = ${consumer} AND c.aggregate_id = a.id AND (a.type = '' OR c.aggregate_type = a.type)) AS version,
               -- With a LIMIT each is looked up in the index; without one Postgres would read all holds first.
               (SELECT true FROM inbox_holds AS h
                WHERE h.consumer_name = ${consumer} AND h.aggregate_id = a.id LIMIT 1) IS NOT NULL AS "isHeld"
        FROM unnest(
          ${aggregates.map(({ aggregateId }) => aggregateId)}::text[],
          ${aggregates.map(({ aggregateType = "" }) => aggregateType)}::text[]
        ) WITH ORDINALITY AS a(id, type, at)`
      return new Map(
        rows.map(({ at, isHeld, version }) => [
          keyOf(aggregates[Number(at) - 1]!),
          { isHeld, version: version ?? undefined }
        ])
      )
    }, Effect.orDie),

    givenUp: Effect.fnUntraced(function* (topic: string, aggregate: Aggregate, after: number, before: number) {
      const { sql } = yield* Transaction
      const [row] = yield* sql<{ readonly versions: number }>`
        SELECT count(DISTINCT aggregate_version)::int4 AS versions FROM outbox_dead_letters
        WHERE aggregate_id = ${aggregate.aggregateId} AND aggregate_type = ${aggregate.aggregateType ?? ""}
          AND topic = ${topic} AND status = 'discarded'
          AND aggregate_version > ${after}::int4 AND aggregate_version < ${before}::int4`
      return row?.versions === before - after - 1
    }, Effect.orDie),

    advance: Effect.fnUntraced(function* (consumer: string, moves: ReadonlyArray<Move>) {
      if (moves.length === 0) return
      const { sql } = yield* Transaction
      // One order for all, so that two transactions that move the same cursors wait for one another and not in a ring.
      const sorted = moves.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
      const [row] = yield* sql<{ readonly moved: number }>`
        WITH move AS MATERIALIZED (
          SELECT m.*, (
            -- Each is looked up in the index. A join of both tables might read all of the consumer's cursors.
            SELECT c.ctid FROM consumer_cursors AS c
            WHERE c.consumer_name = ${consumer} AND c.aggregate_id = m.id AND c.aggregate_type = m.type AND c.version = m.was
          ) AS row
          FROM unnest(
            ${sorted.map((move) => move.aggregateId)}::text[],
            ${sorted.map((move) => move.aggregateType)}::text[],
            ${sorted.map((move) => move.from ?? 0)}::int4[],
            ${sorted.map((move) => move.to)}::int4[]
          ) AS m(id, type, was, now)
        ), moved AS (
          -- The version once more: it is looked at again where another transaction has changed the row meanwhile.
          UPDATE consumer_cursors AS c SET version = move.now FROM move WHERE c.ctid = move.row AND c.version = move.was
          RETURNING 1
        ), made AS (
          INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
          SELECT ${consumer}, id, type, now FROM move WHERE was = 0
          ON CONFLICT DO NOTHING
          RETURNING 1
        )
        SELECT ((SELECT count(*) FROM moved) + (SELECT count(*) FROM made))::int4 AS moved`
      if (row?.moved !== moves.length) return yield* overtaken(`${consumer}: a cursor was moved meanwhile`)
    }, Effect.orDie)
  })
}

/** Rolls the transaction back and has it run again: it lost against a concurrent one, and nothing is wrong with it. */
export const overtaken = (message: string): Effect.Effect<never, SqlError.SqlError> =>
  Effect.fail(
    new SqlError.SqlError({ reason: new SqlError.SerializationError({ cause: new Error(message), message }) })
  )
