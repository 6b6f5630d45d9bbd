/**
 * How far each consumer is with each aggregate: the version that it has applied last. A cursor is never dropped by age, so it recognises a
 * duplicate also when the event's mark in the inbox is long gone.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlError } from "effect/sql"
import * as Rows from "../platform/Rows.ts"
import { Transaction } from "../platform/Transaction.ts"
import type { Subscriber } from "./Subscriber.ts"

/** An aggregate, as its events name it. Without a type (the record can't be read) all aggregates with the id are meant. */
export interface Aggregate {
  readonly aggregateType: string | undefined
  readonly aggregateId: string
}

/** The aggregate as the key of a map. */
export const aggregateKey = ({ aggregateId, aggregateType = "" }: Aggregate): string =>
  `${aggregateType.length} ${aggregateType}${aggregateId}`

/** A consumer's state for an aggregate. */
export interface CursorState {
  /** The version that was applied last; undefined for an aggregate that the consumer has not heard of. */
  readonly version: number | undefined
  /** Whether aggregates with this id are held, as this statement saw it. */
  readonly isHeld: boolean
}

/** A step of a cursor. */
export interface CursorMove {
  readonly aggregateType: string
  readonly aggregateId: string
  readonly from: number | undefined
  readonly to: number
  /** The versions in between that were given up at the outbox: nothing else will tell later that they had no effect. */
  readonly gaps?: ReadonlyArray<Gap>
}

/** Versions behind `after`, up to and with `until`. */
export interface Gap {
  readonly after: number
  readonly until: number
}

/** Compares a version with a consumer's cursor: `behind` is a duplicate, `next` is to be applied, `ahead` leaves a gap. */
export const compare = (
  firstSight: Subscriber["firstSight"],
  cursor: number | undefined,
  version: number
): "behind" | "next" | "ahead" => {
  if (cursor === undefined && firstSight === "any-version") return "next"
  const expected = (cursor ?? 0) + 1
  return version < expected ? "behind" : version === expected ? "next" : "ahead"
}

const givenUpVersions = Rows.one(Schema.Struct({ versions: Schema.Number }))

export class Cursors extends Context.Service<
  Cursors,
  {
    /** The consumer's cursors of these aggregates, and whether the aggregates are held, by {@link aggregateKey}. */
    readonly read: (
      consumer: string,
      aggregates: ReadonlyArray<Aggregate>
    ) => Effect.Effect<ReadonlyMap<string, CursorState>, never, Transaction>
    /**
     * Whether an operator gave up all versions of the aggregate behind `after` and before `before` before they were ever sent. They will
     * never come, so nothing waits for them.
     */
    readonly givenUp: (
      topic: string,
      aggregate: Aggregate,
      after: number,
      before: number
    ) => Effect.Effect<boolean, never, Transaction>
    /**
     * Moves each aggregate's cursor from where this transaction saw it. If another transaction has moved one meanwhile, this transaction
     * rolls back and runs again, and sees the new cursor. Events of an aggregate are therefore applied one after another, whatever other
     * members of the group do.
     */
    readonly advance: (consumer: string, moves: ReadonlyArray<CursorMove>) => Effect.Effect<void, never, Transaction>
  }
>()("paid-once/inbox/Cursors") {
  static readonly layer: Layer.Layer<Cursors> = Layer.succeed(Cursors, {
    read: Effect.fnUntraced(function* (consumer: string, aggregates: ReadonlyArray<Aggregate>) {
      const { sql } = yield* Transaction
      // oxlint-disable-next-line paid-once/decoded-rows -- once for each slice, a row for each aggregate
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
          aggregateKey(aggregates[Number(at) - 1]!),
          { isHeld, version: version ?? undefined }
        ])
      )
    }, Effect.orDie),

    givenUp: Effect.fnUntraced(function* (topic: string, aggregate: Aggregate, after: number, before: number) {
      const { sql } = yield* Transaction
      const { versions } = yield* givenUpVersions(sql`
        SELECT count(DISTINCT aggregate_version)::int4 AS versions FROM outbox_dead_letters
        WHERE aggregate_id = ${aggregate.aggregateId} AND aggregate_type = ${aggregate.aggregateType ?? ""}
          AND topic = ${topic} AND status = 'discarded'
          AND aggregate_version > ${after}::int4 AND aggregate_version < ${before}::int4`)
      return versions === before - after - 1
    }, Effect.orDie),

    advance: Effect.fnUntraced(function* (consumer: string, moves: ReadonlyArray<CursorMove>) {
      if (moves.length === 0) return
      const { sql } = yield* Transaction
      // Sorted: transactions that move the same cursors lock them in one order, and can't deadlock.
      const sorted = moves.toSorted((a, b) => (aggregateKey(a) < aggregateKey(b) ? -1 : 1))
      // oxlint-disable-next-line paid-once/decoded-rows -- once for each slice
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
          -- The version is compared again: where another transaction has changed the row meanwhile, Postgres evaluates this anew.
          UPDATE consumer_cursors AS c SET version = move.now FROM move WHERE c.ctid = move.row AND c.version = move.was
          RETURNING 1
        ), made AS (
          INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
          SELECT ${consumer}, id, type, now FROM move WHERE was = 0
          ON CONFLICT DO NOTHING
          RETURNING 1
        )
        SELECT ((SELECT count(*) FROM moved) + (SELECT count(*) FROM made))::int4 AS moved`
      if (row?.moved !== moves.length) {
        return yield* lostToConcurrent(`${consumer}: another transaction has moved a cursor`)
      }
      const gaps = sorted.flatMap((move) => (move.gaps ?? []).map((gap) => ({ ...gap, ...move })))
      if (gaps.length === 0) return
      yield* sql`
        INSERT INTO consumer_gaps (consumer_name, aggregate_id, aggregate_type, after_version, until_version)
        SELECT ${consumer}, gap.* FROM unnest(${gaps.map((gap) => gap.aggregateId)}::text[],
          ${gaps.map((gap) => gap.aggregateType)}::text[], ${gaps.map(({ after }) => after)}::int4[],
          ${gaps.map(({ until }) => until)}::int4[]) AS gap
        ON CONFLICT DO NOTHING`
    }, Effect.orDie)
  })
}

/** Rolls the transaction back and runs it again: it lost against a concurrent one, and nothing is wrong with its events. */
export const lostToConcurrent = (message: string): Effect.Effect<never, SqlError.SqlError> =>
  Effect.fail(
    new SqlError.SqlError({ reason: new SqlError.SerializationError({ cause: new Error(message), message }) })
  )
