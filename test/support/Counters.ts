/** An aggregate that has nothing to do with orders, as another service that installs the outbox would have one. */
import { Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { Transaction } from "../../src/platform/Transaction.ts"

export const topic = "counters"

export const makeTables = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE counters (id text PRIMARY KEY, version int NOT NULL, value int NOT NULL)`
  yield* sql`CREATE TABLE effects (position bigint GENERATED ALWAYS AS IDENTITY, consumer text, id text, version int)`
})

const stream = (id: string) => ({ topic, aggregateType: "Counter", aggregateId: id })
const event = (data: unknown) => ({ eventType: "Counted", schemaVersion: 1, data })

/** A new counter with its first event, inside the surrounding transaction. */
export const create = Effect.fnUntraced(function* (id: string, data: unknown = { value: 0 }) {
  const { sql } = yield* Transaction
  const outbox = yield* Outbox
  return yield* outbox.save(
    stream(id),
    [event(data)],
    sql<{ readonly version: number }>`INSERT INTO counters VALUES (${id}, 1, 0) RETURNING version`
  )
})

/** Two more events of the counter, inside the surrounding transaction. */
export const increment = Effect.fnUntraced(function* (id: string) {
  const { sql } = yield* Transaction
  const outbox = yield* Outbox
  return yield* outbox.save(
    stream(id),
    [event({ by: 1 }), event({ by: 0 })],
    sql<{ readonly version: number }>`
      UPDATE counters SET value = value + 1, version = version + 2 WHERE id = ${id} RETURNING version`
  )
})

/** The versions of the counter in the queue, in queue order. */
export const queuedVersions = Effect.fnUntraced(function* (id: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly version: number }>`
    SELECT aggregate_version AS version FROM outbox_events WHERE aggregate_id = ${id} ORDER BY lane, seq`
  return rows.map((row) => row.version)
})

export const exists = Effect.fnUntraced(function* (id: string) {
  const sql = yield* SqlClient.SqlClient
  return (yield* sql`SELECT 1 AS one FROM counters WHERE id = ${id}`).length > 0
})

/** The records of the embedded broker's log, in the order of each partition. */
export const published = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{
    readonly id: string
    readonly version: number
    readonly partition: number
    readonly offset: bigint
  }>`
    SELECT record_key AS id, (convert_from(record_value, 'UTF8')::json ->> 'aggregateVersion')::int4 AS version,
           partition, record_offset AS "offset"
    FROM broker_log WHERE topic = ${topic} ORDER BY partition, record_offset`
})

/** Waits until `condition` holds, and checks it up to a few hundred times. Its failure says what it waited for. */
export const eventually = <E, R>(what: string, condition: Effect.Effect<boolean, E, R>, patienceSeconds = 60) =>
  condition.pipe(
    Effect.repeat({ until: (holds) => holds, schedule: Schedule.spaced("20 millis") }),
    Effect.timeoutOrElse({
      duration: `${patienceSeconds} seconds`,
      orElse: () => Effect.die(new Error(`waited ${patienceSeconds} seconds for: ${what}`))
    })
  )

/** Waits until a session of this database waits for another one's lock. */
export const untilBlocked = (what: string) =>
  eventually(
    what,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* sql`
        SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
      return rows.length > 0
    })
  )

/** Waits until the queue is empty. */
export const drained = eventually(
  "the queue to drain",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return (yield* sql`SELECT 1 AS one FROM outbox_events LIMIT 1`).length === 0
  })
)

/** The first deliveries of each aggregate, as their versions in log order. */
export const firstDeliveries = (records: ReadonlyArray<{ readonly id: string; readonly version: number }>) => {
  const seen = new Map<string, Array<number>>()
  for (const { id, version } of records) {
    const versions = seen.get(id) ?? []
    if (!versions.includes(version)) versions.push(version)
    seen.set(id, versions)
  }
  return seen
}
