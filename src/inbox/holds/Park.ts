/** How what comes for a held aggregate is put down behind its hold: once, under an id of its own, whatever is in its record. */
import { Effect } from "effect"
import type { SqlError } from "effect/sql"
import type { ConsumedRecord } from "../../brokers/Broker.ts"
import { toStorable } from "../../platform/StorableText.ts"
import type { Transaction } from "../../platform/Transaction.ts"
import { type Arrival, otherId, ownId } from "../Arrival.ts"
import type { Turn } from "../SlicePlan.ts"
import { columns, type InTransaction, transact } from "./ParkedRows.ts"

/** What came of parking: what each turn is called from now on, and how many are new. */
export interface Parked {
  readonly ids: ReadonlyArray<string>
  readonly parked: number
}

/** The headers as a column can hold them. */
const storableHeaders = (headers: ConsumedRecord["headers"]) =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [toStorable(name), toStorable(value)]))

/** What columns hold of a record's key and value, the value in base64. */
export const storedOf = ({ key, value }: ConsumedRecord) => ({
  record_key: key === null ? null : toStorable(key),
  value: value === null ? null : Buffer.from(value).toString("base64")
})

const rowOf = ({ arrival, position }: Turn, eventId: string) => {
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
const turnColumns = `aggregate_id text, position int4, event_id text, event_type text, aggregate_type text, aggregate_version int4, topic text,
  broker_partition int4, broker_offset int8, record_key text, value text, record_headers json`

/**
 * Takes away again what was buried while it was put down. The INSERT looks at the dead letters as they were when it began; where it met the row
 * of one that was just being buried it waited, found the row gone, and put it down anew. This statement sees the dead letter.
 */
const withdraw = (consumer: string, eventIds: ReadonlyArray<string>): InTransaction<ReadonlySet<string>> =>
  transact((sql) =>
    Effect.map(
      sql<{ readonly own: string }>`
        DELETE FROM inbox_parked AS p USING inbox_dead_letters AS d
        WHERE p.consumer_name = ${consumer} AND p.event_id = ANY (${[...eventIds]}::text[])
          AND d.consumer_name = p.consumer_name AND d.event_id = p.event_id
        RETURNING p.topic || ':' || p.broker_partition || ':' || p.broker_offset AS own`,
      (withdrawn) => new Set(withdrawn.map(({ own }) => own))
    )
  )

/** Puts the rows down whose ids nobody has; returns those ids' records. */
const insert = Effect.fnUntraced(function* (
  consumer: string,
  rows: ReadonlyArray<ReturnType<typeof rowOf>>
): Effect.fn.Return<ReadonlySet<string>, SqlError.SqlError, Transaction> {
  const inserted = yield* transact(
    (sql) => sql<{ readonly own: string; readonly id: string }>`
      INSERT INTO inbox_parked (${sql.literal(columns)})
      SELECT ${consumer}, aggregate_id, position, event_id, event_type, aggregate_type, aggregate_version, topic, broker_partition, broker_offset,
             record_key, decode(value, 'base64'), record_headers, clock_now()
      FROM json_to_recordset(${JSON.stringify(rows)}::text::json) AS turn(${sql.literal(turnColumns)})
      WHERE NOT EXISTS (
        SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = ${consumer} AND d.event_id = turn.event_id)
      -- Of two with one id the first keeps it, whatever plan Postgres takes.
      ORDER BY position, broker_partition, broker_offset
      ON CONFLICT DO NOTHING
      RETURNING topic || ':' || broker_partition || ':' || broker_offset AS own, event_id AS id`
  )
  if (inserted.length === 0) return new Set()
  const withdrawn = yield* withdraw(
    consumer,
    inserted.map(({ id }) => id)
  )
  return new Set(inserted.map(({ own }) => own).filter((own) => !withdrawn.has(own)))
})

/** Of these rows, by their places, those whose ids another event has: of another aggregate, or another version of it. */
const namesakes = (
  consumer: string,
  rows: ReadonlyArray<ReturnType<typeof rowOf>>
): InTransaction<ReadonlySet<number>> =>
  transact((sql) =>
    Effect.map(
      sql<{ readonly at: bigint }>`
        WITH known AS (
          SELECT consumer_name, event_id, aggregate_id, aggregate_type, aggregate_version FROM inbox_parked
          UNION ALL
          SELECT consumer_name, event_id, aggregate_id, aggregate_type, aggregate_version FROM inbox_dead_letters
        )
        SELECT turn.at - 1 AS at
        FROM unnest(
          ${rows.map((row) => row.event_id)}::text[], ${rows.map((row) => row.aggregate_id)}::text[],
          ${rows.map((row) => row.aggregate_type ?? "")}::text[], ${rows.map((row) => row.aggregate_version ?? 0)}::int4[]
        ) WITH ORDINALITY AS turn(event_id, id, type, version, at)
        JOIN known ON known.consumer_name = ${consumer} AND known.event_id = turn.event_id
        WHERE (known.aggregate_id, coalesce(known.aggregate_type, ''), coalesce(known.aggregate_version, 0)) <> (turn.id, turn.type, turn.version)`,
      (found) => new Set(found.map(({ at }) => Number(at)))
    )
  )

/** What an event may be called: another one may have its id, by a fault of its writer, and a topic that was made anew gives its places again. */
const names = [({ eventId }: Arrival) => eventId, ownId, otherId]

/**
 * Parks what is not parked or buried already, behind holds that this transaction has locked. Each gets the first of its {@link names} that no
 * other one has: all can be found and handled.
 */
export const park = Effect.fnUntraced(function* (
  consumer: string,
  turns: ReadonlyArray<Turn>
): Effect.fn.Return<Parked, SqlError.SqlError, Transaction> {
  const ids = turns.map(({ arrival }) => arrival.eventId)
  let parked = 0
  let left = turns.map((turn, index) => ({ turn, index }))
  for (const nameOf of names) {
    const rows = left.map(({ index, turn }) => rowOf(turn, (ids[index] = nameOf(turn.arrival))))
    const inserted = yield* insert(consumer, rows)
    parked += inserted.size
    const isThere = left.map(({ turn }) => !inserted.has(ownId(turn.arrival)))
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
