/**
 * How rows move between the holds, what is parked behind them and the dead letters: one statement each, to be composed inside a
 * {@link Transaction}.
 *
 * Who parks behind a hold has its row FOR KEY SHARE; who tries its events has it FOR NO KEY UPDATE, which lets others go on parking; who
 * ends it, or finds that it has to wait, has it FOR UPDATE and sees all that was parked.
 */
import { Effect } from "effect"
import type { SqlError } from "effect/sql"
import { Transaction } from "../../platform/Transaction.ts"
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import { type Arrival, make } from "../Arrival.ts"
import type { Turn } from "../SlicePlan.ts"

/** An aggregate of a consumer. */
export interface Held {
  readonly consumer: string
  readonly aggregateId: string
}

/** A hold, locked until the transaction ends. */
export interface LockedHold extends Held {
  readonly topic: string
  /** The head's. */
  readonly eventId: string
  readonly status: "retrying" | "dead" | "gap"
  readonly attempts: number
  readonly isDue: boolean
}

export type InTransaction<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

export const transact = <A>(use: (sql: Transaction["Service"]["sql"]) => Effect.Effect<A, SqlError.SqlError>) =>
  Effect.flatMap(Transaction, ({ sql }) => use(sql))

/** A row's columns among what is parked and among the dead letters. */
export const columns = `consumer_name, aggregate_id, position, event_id, event_type, aggregate_type, aggregate_version, topic, broker_partition, broker_offset,
  record_key, record_value, record_headers, parked_at`

/** Locks the aggregate's hold; `undefined` where there is none. `try` leaves one alone that somebody else has. */
export const lockHold = (
  { aggregateId, consumer }: Held,
  mode: "try" | "decide"
): InTransaction<LockedHold | undefined> =>
  transact((sql) =>
    Effect.map(
      sql<LockedHold>`
        SELECT consumer_name AS consumer, aggregate_id AS "aggregateId", topic, event_id AS "eventId", status, attempts,
               coalesce(next_attempt_at <= clock_now(), false) AS "isDue"
        FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}
        ${sql.literal(mode === "try" ? "FOR NO KEY UPDATE SKIP LOCKED" : "FOR UPDATE")}`,
      ([row]) => row
    )
  )

/** Makes the aggregate's hold with this head; false where there is one. */
export const makeHold = (
  { aggregateId, consumer }: Held,
  head: Arrival,
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

/** A parked row. `id` is what it is called, also once its record can be read. */
export interface ParkedRow extends Turn {
  readonly id: string
}

/** What waits behind the hold, in turn. */
export const first = ({ aggregateId, consumer }: Held, limit: number): InTransaction<ReadonlyArray<ParkedRow>> =>
  transact((sql) =>
    Effect.map(
      sql<{
        readonly id: string
        readonly position: number
        readonly topic: string
        readonly partition: number
        readonly offset: bigint
        readonly key: string | null
        readonly value: Uint8Array | null
        readonly headers: ConsumedRecord["headers"]
      }>`
        SELECT event_id AS id, position, topic, broker_partition AS partition, broker_offset AS "offset", record_key AS key, record_value AS value,
               record_headers AS headers
        FROM inbox_parked WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}
        ORDER BY position, broker_offset LIMIT ${limit}`,
      (rows) =>
        rows.map(({ id, partition, position, topic, ...record }) => ({
          id,
          position,
          arrival: { ...make(topic, partition, record), aggregateId }
        }))
    )
  )

/** Takes an event out of what waits: it is applied, or was before. */
export const remove = (consumer: string, eventId: string): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`DELETE FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id = ${eventId}`)
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

/** The hold's next look at its head. */
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

/** The head can't be tried by itself any more: it is dead, or something is missing in front of it. */
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

/** Takes a parked event out from in front of its aggregate and keeps it, with the hold's history, among what nobody tries any more. */
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

/** Brings a dead letter back in front of its aggregate, which is held. */
export const unbury = (consumer: string, eventId: string): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`
      WITH head AS (
        DELETE FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND event_id = ${eventId} RETURNING *
      )
      INSERT INTO inbox_parked (${sql.literal(columns)}) SELECT ${sql.literal(columns)} FROM head`)
  )

/** Ends a hold behind which nothing waits: what comes next is applied from the topic. */
export const release = ({ aggregateId, consumer }: Held): InTransaction<void> =>
  transact((sql) =>
    Effect.asVoid(sql`DELETE FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}`)
  )
