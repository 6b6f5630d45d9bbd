/**
 * The usual slice in one statement: every record is an event, none of its aggregates is held, and each has its next versions here. Then
 * the marks are set and the cursors are moved at once; otherwise nothing is written, and the slice goes the long way (SlicePlan.ts).
 */
import { Context, Effect, Result } from "effect"
import type { Arrival, ReadableArrival } from "../../inbox/Arrival.ts"
import { keyOf, overtaken } from "../../inbox/Cursors.ts"
import { Transaction } from "../../platform/Transaction.ts"

interface Run {
  readonly aggregateId: string
  readonly aggregateType: string
  readonly first: number
  last: number
}

/** The events' aggregates, if the versions of each rise by one here. */
const runsOf = (events: ReadonlyArray<ReadableArrival>): ReadonlyMap<string, Run> | undefined => {
  const runs = new Map<string, Run>()
  for (const { event } of events) {
    const { aggregateId, aggregateType, aggregateVersion } = event
    const key = keyOf(event)
    const run = runs.get(key)
    if (run === undefined)
      runs.set(key, { aggregateId, aggregateType, first: aggregateVersion, last: aggregateVersion })
    else if (aggregateVersion === run.last + 1) run.last = aggregateVersion
    else return undefined
  }
  return runs
}

/** What was claimed: the arrivals as events, and the ids of those that were not marked before. */
export interface Claimed {
  readonly events: ReadonlyArray<ReadableArrival>
  readonly first: ReadonlySet<string>
}

const claim = Effect.fnUntraced(function* (consumer: string, arrivals: ReadonlyArray<Arrival>) {
  const events = arrivals.flatMap((arrival) =>
    Result.isSuccess(arrival.read) ? [{ ...arrival, event: arrival.read.success }] : []
  )
  const runs = events.length === arrivals.length ? runsOf(events) : undefined
  if (runs === undefined) return undefined
  const { sql } = yield* Transaction
  // One order for all, as everywhere: two transactions at the same rows wait for one another and not in a ring.
  const moves = [...runs].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, run]) => run)
  const ids = arrivals.map(({ eventId }) => eventId)
  const [row] = yield* sql<{
    readonly isUsual: boolean
    readonly moved: number
    readonly marked: ReadonlyArray<string>
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
      -- First the marks, then the cursors, as everywhere: what follows reads this, and so comes after it.
      INSERT INTO processed_events (consumer_name, event_id, processed_at)
      SELECT ${consumer}, event_id, clock_now() FROM usual, unnest(${ids.toSorted()}::uuid[]) AS event_id
      ON CONFLICT DO NOTHING
      RETURNING event_id
    ), moved AS (
      -- The version once more: it is looked at again where another transaction has changed the row meanwhile.
      UPDATE consumer_cursors AS c SET version = move.now FROM usual, move, (SELECT count(*) FROM marked) AS behind_marks
      WHERE c.ctid = move.row AND c.version = move.was
      RETURNING 1
    ), made AS (
      INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
      SELECT ${consumer}, id, type, now FROM usual, move, (SELECT count(*) FROM moved) AS behind_moves WHERE was = 0
      ON CONFLICT DO NOTHING
      RETURNING 1
    )
    SELECT EXISTS (SELECT FROM usual) AS "isUsual",
           ((SELECT count(*) FROM moved) + (SELECT count(*) FROM made))::int4 AS moved,
           ARRAY(SELECT event_id::text FROM marked) AS marked`
  if (row?.isUsual !== true) return undefined
  if (row.moved !== moves.length) return yield* overtaken(`${consumer}: a cursor was moved meanwhile`)
  return { events, first: new Set(row.marked) }
}, Effect.orDie)

/**
 * Claims a usual slice for the consumer; undefined where it is not one, and nothing is written. An aggregate that the consumer has not heard
 * of is usual from version 1 on, whatever the consumer thinks of a later first sight. A reference, so that a test can go the long way always.
 */
export const OneStatementClaim = Context.Reference<
  (consumer: string, arrivals: ReadonlyArray<Arrival>) => Effect.Effect<Claimed | undefined, never, Transaction>
>("paid-once/postgres/fast/Claim", { defaultValue: () => claim })

/** Nothing is usual: marks and cursors each have their own statements. */
export const never: Context.Service.Shape<typeof OneStatementClaim> = () => Effect.succeed(undefined)
