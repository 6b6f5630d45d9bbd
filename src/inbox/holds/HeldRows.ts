/**
 * How rows move between the holds, the parked rows behind them and the dead letters: one statement each, to be composed inside a
 * {@link Transaction}.
 *
 * Three strengths of lock on a hold's row keep the moves apart:
 *
 * - FOR KEY SHARE, to park behind the hold.
 * - FOR NO KEY UPDATE, to try the hold's events. Others go on parking.
 * - FOR UPDATE, to end the hold or to stop its attempts. Its transaction waits for those that are parking, and sees what they parked.
 */
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { make } from "../Arrival.ts"
import type { HeldArrival } from "../SlicePlan.ts"

/** An aggregate of a consumer. */
export interface Held {
  readonly consumer: string
  readonly aggregateId: string
}

/** A hold, locked until the transaction ends. */
const LockedHold = Schema.Struct({
  consumer: Schema.String,
  aggregateId: Schema.String,
  topic: Schema.String,
  /** The id of the hold's head. */
  eventId: Schema.String,
  status: Schema.Literals(["retrying", "dead", "gap"]),
  /** Failed attempts of the head. */
  attempts: Schema.Number,
  isDue: Schema.Boolean
})
export type LockedHold = typeof LockedHold.Type
const firstHold = Rows.first(LockedHold)

export type InTransaction<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

export const transact = <A>(use: (sql: Transaction["Service"]["sql"]) => Effect.Effect<A, SqlError.SqlError>) =>
  Effect.flatMap(Transaction, ({ sql }) => use(sql))

/** The columns that parked rows and dead letters have in common. */
export const columns = `consumer_name, aggregate_id, position, event_id, event_type, aggregate_type, aggregate_version, topic, broker_partition, broker_offset,
  record_key, record_value, record_headers, parked_at`

/**
 * Locks the aggregate's hold; undefined where there is none. For an `attempt` a hold that another process has locked is skipped, and so undefined,
 * too. `exclusive` waits for all who have it.
 */
export const lockHold = (
  { aggregateId, consumer }: Held,
  mode: "attempt" | "exclusive"
): InTransaction<LockedHold | undefined> =>
  transact((sql) =>
    firstHold(sql`
      SELECT consumer_name AS consumer, aggregate_id AS "aggregateId", topic, event_id AS "eventId", status, attempts,
             coalesce(next_attempt_at <= clock_now(), false) AS "isDue"
      FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}
      ${sql.literal(mode === "attempt" ? "FOR NO KEY UPDATE SKIP LOCKED" : "FOR UPDATE")}`)
  )

/** Makes the aggregate's hold with this head. False where the aggregate is held already. */
export const makeHold = (
  { aggregateId, consumer }: Held,
  head: HeldArrival["arrival"],
  status: "retrying" | "gap"
): InTransaction<boolean> =>
  transact((sql) =>
    Effect.map(
      sql`
        INSERT INTO inbox_holds (consumer_name, aggregate_id, topic, event_id, status, attempts, next_attempt_at, held_at)
        VALUES (${consumer}, ${aggregateId}, ${head.topic}, ${head.eventId}, ${status}, 0,
                CASE WHEN ${status}::text = 'retrying' THEN clock_now() END, clock_now())
        ON CONFLICT DO NOTHING
        RETURNING 1 AS one`,
      (rows) => rows.length > 0
    )
  )

/** A parked row. */
export interface ParkedRow extends HeldArrival {
  /** The row's id, which may be another one than the arrival's: a record that could not be read when it was parked may be readable now. */
  readonly id: string
}

const parkedRows = Rows.all(
  Schema.Struct({
    id: Schema.String,
    position: Schema.Number,
    topic: Schema.String,
    partition: Schema.Number,
    offset: Schema.BigInt,
    key: Schema.NullOr(Schema.String),
    value: Schema.NullOr(Schema.Uint8Array),
    headers: Schema.Record(Schema.String, Schema.String)
  })
)

/** The first rows behind the hold, in the order in which they are applied. */
export const first = ({ aggregateId, consumer }: Held, limit: number): InTransaction<ReadonlyArray<ParkedRow>> =>
  transact((sql) =>
    Effect.map(
      parkedRows(sql`
        SELECT event_id AS id, position, topic, broker_partition AS partition, broker_offset AS "offset", record_key AS key, record_value AS value,
               record_headers AS headers
        FROM inbox_parked WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}
        ORDER BY position, broker_offset LIMIT ${limit}`),
      (rows) =>
        rows.map(({ id, partition, position, topic, ...record }) => ({
          id,
          position,
          arrival: { ...make(topic, partition, record), aggregateId }
        }))
    )
  )

/** Removes a parked event: it is applied, or was before. Its mark, of the id `eventId`, keeps the failures that it had as the hold's head. */
export const remove = (consumer: string, id: string, eventId: string): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH removed AS (
        DELETE FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id = ${id} RETURNING aggregate_id
      )
      UPDATE processed_events AS p SET history = h.history
      FROM removed JOIN inbox_holds AS h ON h.consumer_name = ${consumer} AND h.aggregate_id = removed.aggregate_id
      WHERE h.event_id = ${id} AND h.history <> '[]' AND p.consumer_name = ${consumer} AND p.event_id = ${eventId}::uuid`)
  )

/** One more failure of this head, which becomes the hold's if it was not. */
export const countFailure = (
  { aggregateId, consumer }: Held,
  failure: {
    readonly eventId: string
    readonly attempts: number
    readonly error: string
    readonly historyLimit: number
  }
): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      UPDATE inbox_holds
      SET event_id = ${failure.eventId}, attempts = ${failure.attempts}::int4, last_error = ${failure.error}::text,
          status = 'retrying', next_attempt_at = clock_now(),
          history = append_bounded(CASE WHEN ${failure.attempts}::int4 = 1 AND event_id <> ${failure.eventId} THEN '[]' ELSE history END,
            jsonb_build_object('attempt', ${failure.attempts}::int4,
              'at', to_char(clock_now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'error', ${failure.error}::text),
            ${failure.historyLimit}::int4)
      WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}`)
  )

/** Sets when the hold's head is tried next. With `eventId` and `attempts` that is another head, or the same one with a new budget. */
export const setDue = (
  { aggregateId, consumer }: Held,
  due: { readonly eventId?: string; readonly attempts?: number; readonly waitMillis: number }
): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      UPDATE inbox_holds
      SET status = 'retrying', next_attempt_at = clock_now() + ${due.waitMillis}::float8 * interval '1 ms',
          event_id = coalesce(${due.eventId ?? null}::text, event_id), attempts = coalesce(${due.attempts ?? null}::int4, attempts),
          history = CASE WHEN event_id = coalesce(${due.eventId ?? null}::text, event_id) THEN history ELSE '[]' END
      WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}`)
  )

/** Stops the attempts: the head is dead, or an earlier version is missing. */
export const setWaiting = (
  { aggregateId, consumer }: Held,
  waiting: { readonly status: "dead" | "gap"; readonly eventId: string; readonly error: string }
): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      UPDATE inbox_holds
      SET status = ${waiting.status}, next_attempt_at = NULL, event_id = ${waiting.eventId}, last_error = ${waiting.error},
          attempts = CASE WHEN ${waiting.status}::text = 'gap' THEN 0 ELSE attempts END,
          history = CASE WHEN ${waiting.status}::text = 'gap' THEN '[]' ELSE history END
      WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}`)
  )

/** Moves a parked event, with its hold's history, to the dead letters. Its hold stays. */
export const bury = (held: Held, eventId: string, status: "dead" | "discarded"): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH head AS (
        DELETE FROM inbox_parked WHERE consumer_name = ${held.consumer} AND event_id = ${eventId} RETURNING *
      )
      INSERT INTO inbox_dead_letters (${sql.literal(columns)}, status, attempts, last_error, history, ended_at)
      SELECT ${sql.literal(columns.replaceAll(/(\w+)/g, "head.$1"))}, ${status}, h.attempts, h.last_error, h.history, clock_now()
      FROM head JOIN inbox_holds AS h USING (consumer_name, aggregate_id)`)
  )

/** Moves a dead letter back behind its aggregate's hold, where it is first. */
export const unbury = (consumer: string, eventId: string): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH head AS (
        DELETE FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND event_id = ${eventId} RETURNING *
      )
      INSERT INTO inbox_parked (${sql.literal(columns)}) SELECT ${sql.literal(columns)} FROM head`)
  )

/** Ends a hold behind which nothing waits: the aggregate's next event is applied from the topic. */
export const release = ({ aggregateId, consumer }: Held): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`DELETE FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}`)
  )
