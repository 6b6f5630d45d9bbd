/**
 * The inbox's fast path: marks and cursors of a usual slice in one statement.
 *
 * A slice is usual if every record is an event, none of its aggregates is held, and each aggregate's versions follow its cursor. For any other slice
 * the statement writes nothing, and the inbox continues step by step (ApplySlice.ts).
 */
import { Effect, Layer, Result } from "effect"
import type { Arrival, ReadableArrival } from "../../inbox/Arrival.ts"
import { aggregateKey, lostToConcurrent } from "../../inbox/Cursors.ts"
import { FastPath } from "../../inbox/FastPath.ts"
import { Transaction } from "../../platform/Transaction.ts"

/** Consecutive versions of one aggregate. */
interface Run {
  readonly aggregateId: string
  readonly aggregateType: string
  readonly first: number
  last: number
}

/** The aggregates of these events, by {@link aggregateKey}; undefined if an aggregate's versions are not consecutive. */
const runsOf = (events: ReadonlyArray<ReadableArrival>): ReadonlyMap<string, Run> | undefined => {
  const runs = new Map<string, Run>()
  for (const { event } of events) {
    const { aggregateId, aggregateType, aggregateVersion } = event
    const key = aggregateKey(event)
    const run = runs.get(key)
    if (run === undefined)
      runs.set(key, { aggregateId, aggregateType, first: aggregateVersion, last: aggregateVersion })
    else if (aggregateVersion === run.last + 1) run.last = aggregateVersion
    else return undefined
  }
  return runs
}

/** See {@link FastPath}. An aggregate that the consumer has not heard of is usual from version 1 on, whatever its `firstSight` says. */
export const claim = Effect.fnUntraced(function* (consumer: string, arrivals: ReadonlyArray<Arrival>) {
  const events = arrivals.flatMap((arrival) =>
    Result.isSuccess(arrival.read) ? [{ ...arrival, event: arrival.read.success }] : []
  )
  const runs = events.length === arrivals.length ? runsOf(events) : undefined
  if (runs === undefined) return undefined
  const { sql } = yield* Transaction
  // Sorted, as in Cursors.advance: transactions on the same rows lock them in one order, and can't deadlock.
  const moves = [...runs].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, run]) => run)
  const ids = arrivals.map(({ eventId }) => eventId)
  // oxlint-disable-next-line paid-once/decoded-rows -- once for each slice, an id for each event
  const [row] = yield* sql<{
    readonly isUsual: boolean
    readonly moved: number
    readonly marked: ReadonlyArray<string> | null
  }>`
    WITH move AS MATERIALIZED (
      SELECT m.*, (
        -- Each is looked up in the index. A join of both tables might read all of the consumer's cursors.
        SELECT c.ctid FROM consumer_cursors AS c
        WHERE c.consumer_name = ${consumer} AND c.aggregate_id = m.id AND c.aggregate_type = m.type
          AND (m.was = 0 OR c.version = m.was)
      ) AS row, (
        SELECT true FROM inbox_holds AS h WHERE h.consumer_name = ${consumer} AND h.aggregate_id = m.id LIMIT 1
      ) AS is_held
      FROM unnest(
        ${moves.map((move) => move.aggregateId)}::text[],
        ${moves.map((move) => move.aggregateType)}::text[],
        ${moves.map((move) => move.first - 1)}::int4[],
        ${moves.map((move) => move.last)}::int4[]
      ) AS m(id, type, was, now)
    ), usual AS MATERIALIZED (
      SELECT FROM move HAVING bool_and(is_held IS NULL AND (was = 0) = (row IS NULL))
    ), marked AS (
      -- Marks are locked before cursors, as everywhere. A later part reads this one, so Postgres runs it earlier.
      INSERT INTO processed_events (consumer_name, event_id, processed_at)
      SELECT ${consumer}, event_id, clock_now() FROM usual, unnest(${ids.toSorted()}::uuid[]) AS event_id
      ON CONFLICT DO NOTHING
      RETURNING event_id
    ), marks AS MATERIALIZED (
      -- By itself: inside of the next part Postgres would count the marks once for each cursor.
      SELECT count(*) AS count FROM marked
    ), moved AS (
      -- The version is compared again: where another transaction has changed the row meanwhile, Postgres evaluates this anew.
      UPDATE consumer_cursors AS c SET version = move.now FROM usual, move, marks
      WHERE c.ctid = move.row AND c.version = move.was
      RETURNING 1
    ), moves AS MATERIALIZED (
      SELECT count(*) AS count FROM moved
    ), made AS (
      INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
      SELECT ${consumer}, id, type, now FROM usual, move, marks, moves WHERE was = 0
      ON CONFLICT DO NOTHING
      RETURNING 1
    )
    SELECT EXISTS (SELECT FROM usual) AS "isUsual",
           ((SELECT count FROM moves) + (SELECT count(*) FROM made))::int4 AS moved,
           -- As a rule all of them are new.
           CASE WHEN (SELECT count FROM marks) < ${ids.length}::int4 THEN ARRAY(SELECT event_id::text FROM marked) END AS marked`
  if (row?.isUsual !== true) return undefined
  if (row.moved !== moves.length) {
    return yield* lostToConcurrent(`${consumer}: another transaction has moved a cursor`)
  }
  return { events, first: new Set(row.marked ?? ids) }
}, Effect.orDie)

/** Gives the inbox its fast path. */
export const layer: Layer.Layer<never> = Layer.succeed(FastPath, claim)
