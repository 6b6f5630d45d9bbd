/** Parks records behind a hold: each once, under an id that is its own, whatever bytes the record has. */
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import * as Rows from "../../platform/Rows.ts"
import { toStorable } from "../../platform/StorableText.ts"
import type { Transaction } from "../../platform/Transaction.ts"
import { type Arrival, otherId, ownId } from "../Arrival.ts"
import type { HeldArrival } from "../SlicePlan.ts"
import { columns, type InTransaction, transact } from "./HeldRows.ts"

/** The id of each record's row, and how many of the rows are new. */
export interface Parked {
  readonly ids: ReadonlyArray<string>
  readonly parked: number
}

/** The headers as JSON in Postgres can hold them. */
const storableHeaders = (headers: ConsumedRecord["headers"]) =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [toStorable(name), toStorable(value)]))

/** A record's key and value as columns hold them, the value in base64. */
export const storedOf = ({ key, value }: ConsumedRecord) => ({
  record_key: key === null ? null : toStorable(key),
  value: value === null ? null : Buffer.from(value).toString("base64")
})

const rowOf = ({ arrival, position }: HeldArrival, eventId: string) => {
  const { aggregateId, partition, read, record, topic } = arrival
  const event = read._tag === "Success" ? read.success : undefined
  return {
    aggregate_id: aggregateId,
    position,
    event_id: eventId,
    event_type: event?.eventType,
    aggregate_type: event?.aggregateType,
    aggregate_version: event?.aggregateVersion,
    topic,
    broker_partition: partition,
    broker_offset: String(record.offset),
    ...storedOf(record),
    record_headers: storableHeaders(record.headers)
  }
}

/** The columns of {@link rowOf}. */
const rowColumns = `aggregate_id text, position int4, event_id text, event_type text, aggregate_type text, aggregate_version int4, topic text,
  broker_partition int4, broker_offset int8, record_key text, value text, record_headers json`

const withdrawnRows = Rows.all(Schema.Struct({ own: Schema.String }))

/**
 * Removes the rows of events that became dead letters while they were parked. The INSERT sees the dead letters as they were when it began. If
 * it met the row of an event that was just being moved there, it waited, found the row gone, and inserted it anew. This statement sees
 * the dead letter.
 */
const withdraw = (consumer: string, eventIds: ReadonlyArray<string>): InTransaction<ReadonlySet<string>> =>
  transact((sql) =>
    Effect.map(
      withdrawnRows(sql`
        DELETE FROM inbox_parked AS p USING inbox_dead_letters AS d
        WHERE p.consumer_name = ${consumer} AND p.event_id = ANY (${[...eventIds]}::text[])
          AND d.consumer_name = p.consumer_name AND d.event_id = p.event_id
        RETURNING p.topic || ':' || p.broker_partition || ':' || p.broker_offset AS own`),
      (withdrawn) => new Set(withdrawn.map(({ own }) => own))
    )
  )

const insertedRows = Rows.all(Schema.Struct({ own: Schema.String, id: Schema.String }))

/** Inserts the rows whose ids no parked row and no dead letter has; returns the {@link ownId}s of their records. */
const insert = Effect.fnUntraced(function* (
  consumer: string,
  rows: ReadonlyArray<ReturnType<typeof rowOf>>
): Effect.fn.Return<ReadonlySet<string>, SqlError.SqlError, Transaction> {
  const inserted = yield* transact((sql) =>
    insertedRows(sql`
      INSERT INTO inbox_parked (${sql.literal(columns)})
      SELECT ${consumer}, aggregate_id, position, event_id, event_type, aggregate_type, aggregate_version, topic, broker_partition, broker_offset,
             record_key, decode(value, 'base64'), record_headers, clock_now()
      FROM json_to_recordset(${JSON.stringify(rows)}::text::json) AS parking(${sql.literal(rowColumns)})
      WHERE NOT EXISTS (
        SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = ${consumer} AND d.event_id = parking.event_id)
      -- Of two rows with one id the first one keeps it, whatever plan Postgres takes.
      ORDER BY position, broker_partition, broker_offset
      ON CONFLICT DO NOTHING
      RETURNING topic || ':' || broker_partition || ':' || broker_offset AS own, event_id AS id`)
  )
  if (inserted.length === 0) return new Set()
  const withdrawn = yield* withdraw(
    consumer,
    inserted.map(({ id }) => id)
  )
  return new Set(inserted.map(({ own }) => own).filter((own) => !withdrawn.has(own)))
})

const namesakeRows = Rows.all(Schema.Struct({ at: Schema.BigInt }))

/** The indices of those rows whose ids another event has: one of another aggregate, or another version of the same one. */
const namesakes = (
  consumer: string,
  rows: ReadonlyArray<ReturnType<typeof rowOf>>
): InTransaction<ReadonlySet<number>> =>
  transact((sql) =>
    Effect.map(
      namesakeRows(sql`
        WITH known AS (
          SELECT consumer_name, event_id, aggregate_id, aggregate_type, aggregate_version FROM inbox_parked
          UNION ALL
          SELECT consumer_name, event_id, aggregate_id, aggregate_type, aggregate_version FROM inbox_dead_letters
        )
        SELECT parking.at - 1 AS at
        FROM unnest(
          ${rows.map((row) => row.event_id)}::text[], ${rows.map((row) => row.aggregate_id)}::text[],
          ${rows.map((row) => row.aggregate_type ?? "")}::text[], ${rows.map((row) => row.aggregate_version ?? 0)}::int4[]
        ) WITH ORDINALITY AS parking(event_id, id, type, version, at)
        JOIN known ON known.consumer_name = ${consumer} AND known.event_id = parking.event_id
        WHERE (known.aggregate_id, coalesce(known.aggregate_type, ''), coalesce(known.aggregate_version, 0))
           <> (parking.id, parking.type, parking.version)`),
      (found) => new Set(found.map(({ at }) => Number(at)))
    )
  )

/**
 * The ids that a record may be parked under, in this order. Another event may have its event id, by a mistake of its producer; and a topic that
 * was deleted and made again gives its offsets a second time.
 */
const idsOf = [({ eventId }: Arrival) => eventId, ownId, otherId]

/**
 * Parks the records that are neither parked nor dead letters, behind holds that this transaction has locked. Each gets the first of its
 * possible ids that no other event has, so an operator can find and handle every one.
 */
export const park = Effect.fnUntraced(function* (
  consumer: string,
  arrivals: ReadonlyArray<HeldArrival>
): Effect.fn.Return<Parked, SqlError.SqlError, Transaction> {
  const ids = arrivals.map(({ arrival }) => arrival.eventId)
  let parked = 0
  let left = arrivals.map((held, index) => ({ held, index }))
  for (const idOf of idsOf) {
    const rows = left.map(({ held, index }) => rowOf(held, (ids[index] = idOf(held.arrival))))
    const inserted = yield* insert(consumer, rows)
    parked += inserted.size
    const isThere = left.map(({ held }) => !inserted.has(ownId(held.arrival)))
    if (!isThere.includes(true)) break
    const taken = yield* namesakes(
      consumer,
      rows.filter((_, at) => isThere[at])
    )
    left = left.filter((_, at) => isThere[at]).filter((_, at) => taken.has(at))
    if (left.length === 0) break
  }
  return { ids, parked }
})
