/**
 * Moves rows between the queue, the parked rows behind a hold, the dead letters and the archive, with one statement each. The statements run inside a
 * {@link Transaction}. It has either locked the hold's row ({@link lockHold}), or the statement locks it itself ({@link parkArrivals}).
 *
 * A transaction with a locked hold never waits for a row of the queue: it skips locked rows. So these transactions can't deadlock with one another,
 * nor with a mark. Two operators who each redrive many aggregates in one transaction can deadlock; Postgres ends one, and it runs again.
 */
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Lane } from "../Lane.ts"
import { type Aggregate, type Receipt, warnOfSharedId } from "../Queue.ts"

/** A hold, locked until the transaction ends. `eventId` and `seq` are the head's. */
const LockedHold = Schema.Struct({
  aggregateType: Schema.String,
  aggregateId: Schema.String,
  lane: Lane,
  topic: Schema.String,
  eventId: Schema.String,
  seq: Schema.BigInt,
  attempts: Schema.Int,
  dead: Schema.Boolean
})
export type LockedHold = typeof LockedHold.Type

const firstHold = Rows.first(LockedHold)
const movedCount = Rows.one(Schema.Struct({ moved: Schema.Int }))
const movedPiece = Rows.one(Schema.Struct({ first: Schema.NullOr(Schema.BigInt), isCut: Schema.Boolean }))

/** A row's columns in the queue, in the parked rows and in the dead letters. The row keeps its `seq`, its position in the lane. */
const columns = `lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
  occurred_at, trace_id, span_id, record_bytes, data`

type InTransaction<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

const transact = <A>(use: (sql: Transaction["Service"]["sql"]) => Effect.Effect<A, SqlError.SqlError>) =>
  Effect.flatMap(Transaction, ({ sql }) => use(sql))

/** Waits for the lock of the aggregate's hold; `undefined` if there is none. Later statements see its latest state. */
export const lockHold = ({ aggregateId, aggregateType }: Aggregate): InTransaction<LockedHold | undefined> =>
  transact((sql) =>
    firstHold(sql`
      SELECT aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", lane, topic, event_id::text AS "eventId", seq,
             attempts, next_attempt_at IS NULL AS dead
      FROM outbox_holds WHERE aggregate_type = ${aggregateType} AND aggregate_id = ${aggregateId} FOR UPDATE`)
  )

/**
 * The most rows and bytes that one statement moves, some tenths of a second of work. A statement that exceeds the pool's time limit (`PoolSettings`)
 * would fail each time. Then its aggregate could never be held or released.
 */
const moveRows = 2_000
const moveBytes = 4_000_000

/** The aggregate's first rows in a table, one more than a statement moves. Those that `fit` are moved: always the first one. */
const pieceOf = (
  sql: Transaction["Service"]["sql"],
  table: "outbox_events" | "outbox_parked",
  lane: Lane,
  { aggregateId, aggregateType }: Aggregate
) => sql`
  SELECT seq, turn <= ${moveRows} AND (turn = 1 OR bytes_to_here <= ${moveBytes}) AS fits
  FROM (
    SELECT seq, row_number() OVER in_order AS turn, sum(record_bytes) OVER in_order AS bytes_to_here
    FROM (
      SELECT seq, record_bytes FROM ${sql(table)}
      WHERE lane = ${lane}::int2 AND aggregate_type = ${aggregateType} AND aggregate_id = ${aggregateId}
      ORDER BY seq LIMIT ${moveRows + 1}
    ) AS first
    WINDOW in_order AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
  ) AS measured`

/**
 * Parks the aggregate's rows in the queue behind its hold, up to the bounds of one statement. Locked rows and rows beyond the bounds stay: a later
 * fetch finds and parks them ({@link parkArrivals}).
 */
export const parkAggregate = (aggregate: Aggregate, lane: Lane): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH piece AS MATERIALIZED (${pieceOf(sql, "outbox_events", lane, aggregate)}), free AS MATERIALIZED (
        SELECT seq FROM outbox_events
        WHERE lane = ${lane}::int2 AND seq = ANY (ARRAY(SELECT seq FROM piece WHERE fits))
        FOR UPDATE SKIP LOCKED
      ), moved AS (
        DELETE FROM outbox_events AS e USING free WHERE e.lane = ${lane}::int2 AND e.seq = free.seq
        RETURNING e.*
      )
      INSERT INTO outbox_parked (${sql.literal(columns)}) SELECT ${sql.literal(columns)} FROM moved`)
  )

/**
 * Parks those of the rows whose aggregates are held; returns how many. This statement needs no locked hold: it locks the holds' rows FOR KEY SHARE. A
 * release that comes later sees the parked rows. A release in progress has the hold locked, so nothing is parked.
 */
export const parkArrivals = (lane: Lane, seqs: ReadonlyArray<bigint>): InTransaction<number> =>
  transact((sql) =>
    Effect.map(
      movedCount(sql`
        WITH held AS MATERIALIZED (
          SELECT aggregate_type, aggregate_id FROM outbox_holds WHERE lane = ${lane}::int2 FOR KEY SHARE SKIP LOCKED
        ), free AS MATERIALIZED (
          SELECT e.seq FROM outbox_events AS e JOIN held USING (aggregate_type, aggregate_id)
          WHERE e.lane = ${lane}::int2 AND e.seq = ANY (${[...seqs]}::int8[])
          FOR UPDATE OF e SKIP LOCKED
        ), moved AS (
          DELETE FROM outbox_events AS e USING free WHERE e.lane = ${lane}::int2 AND e.seq = free.seq
          RETURNING e.*
        ), parked AS (
          INSERT INTO outbox_parked (${sql.literal(columns)}) SELECT ${sql.literal(columns)} FROM moved
          RETURNING 1
        )
        SELECT count(*)::int4 AS moved FROM parked`),
      ({ moved }) => moved
    )
  )

/** Archives the published head with its refusals, unless the archive already has its id. Without an archive it deletes the head. */
export const archiveHead = (hold: LockedHold, receipt: Receipt, archive: boolean): InTransaction<void> =>
  transact((sql) =>
    archive
      ? sql`
          WITH published AS (
            DELETE FROM outbox_parked WHERE lane = ${hold.lane}::int2 AND seq = ${hold.seq}::int8 RETURNING *
          )
          INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                 occurred_at, trace_id, span_id, data, broker_partition, broker_offset, published_at, history)
          SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                 occurred_at, trace_id, span_id, data, ${receipt.partition}::int4, ${receipt.baseOffset}::int8,
                 clock_now() - ${receipt.ageMillis?.() ?? 0}::int4 * interval '1 ms',
                 (SELECT history FROM outbox_holds
                  WHERE aggregate_type = ${hold.aggregateType} AND aggregate_id = ${hold.aggregateId})
          FROM published
          ON CONFLICT DO NOTHING RETURNING 1 AS one`.pipe(
          Effect.flatMap((archived) => (archived.length === 0 ? warnOfSharedId(hold.eventId) : Effect.void))
        )
      : Effect.asVoid(sql`DELETE FROM outbox_parked WHERE lane = ${hold.lane}::int2 AND seq = ${hold.seq}::int8`)
  )

/** Moves the head, with its history, to the events that are not sent any more. */
export const buryHead = (hold: LockedHold, status: "dead" | "discarded"): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH head AS (
        DELETE FROM outbox_parked WHERE lane = ${hold.lane}::int2 AND seq = ${hold.seq}::int8 RETURNING *
      )
      INSERT INTO outbox_dead_letters (${sql.literal(columns)}, status, attempts, last_error, history, ended_at)
      SELECT ${sql.literal(columns.replaceAll(/(\w+)/g, "head.$1"))}, ${status}, h.attempts, h.last_error, h.history, clock_now()
      FROM head JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)`)
  )

/** Whether a dead or discarded letter has this id. */
export const isBuried = (eventId: string): InTransaction<boolean> =>
  transact((sql) =>
    Effect.map(
      sql`SELECT 1 AS one FROM outbox_dead_letters WHERE event_id = ${eventId}::uuid`,
      (rows) => rows.length > 0
    )
  )

/** Makes a dead letter the head of its held aggregate again. */
export const unburyHead = (eventId: string): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH head AS (DELETE FROM outbox_dead_letters WHERE event_id = ${eventId}::uuid RETURNING *)
      INSERT INTO outbox_parked (${sql.literal(columns)}) SELECT ${sql.literal(columns)} FROM head`)
  )

/**
 * Ends the hold: the parked rows return to the queue with their old `seq`. Events published meanwhile may have a larger `seq`, so a last
 * position read is not a valid cursor. LowWaterMarks.ts counts parked and dead rows as if they were in the queue.
 *
 * One transaction moves all rows, however many there are. If some rows were in the queue and others still parked without a hold, the queue would have
 * a gap.
 */
export const release = (hold: LockedHold): InTransaction<void> =>
  transact((sql) =>
    Effect.gen(function* () {
      const moveSome = movedPiece(sql`
        WITH piece AS MATERIALIZED (${pieceOf(sql, "outbox_parked", hold.lane, hold)}), moved AS (
          DELETE FROM outbox_parked AS p USING piece WHERE piece.fits AND p.lane = ${hold.lane}::int2 AND p.seq = piece.seq
          RETURNING p.*
        ), back AS (
          INSERT INTO outbox_events (${sql.literal(columns)}) OVERRIDING SYSTEM VALUE
          SELECT ${sql.literal(columns)} FROM moved
        )
        SELECT min(seq) AS first, coalesce(bool_or(NOT fits), false) AS "isCut" FROM piece`)
      const piece = yield* moveSome
      // Rule 1 again, where it is cheap to check: every parked row comes after the head.
      if (piece.first !== null && piece.first <= hold.seq) {
        return yield* Effect.die(
          new Error(`${hold.aggregateType} ${hold.aggregateId}: an earlier event is parked behind ${hold.eventId}`)
        )
      }
      let { isCut } = piece
      while (isCut) isCut = (yield* moveSome).isCut
      yield* sql`
        DELETE FROM outbox_holds WHERE aggregate_type = ${hold.aggregateType} AND aggregate_id = ${hold.aggregateId}`
    })
  )
