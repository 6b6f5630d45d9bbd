/** Slices for a consumer's steps, as a broker hands them over, and a subscriber whose failures the test decides. */
import type { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import type { ConsumedRecord, Slice } from "../../src/brokers/Broker.ts"
import type { Holds } from "../../src/inbox/holds/Holds.ts"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import * as Parking from "../../src/inbox/holds/Parking.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { InboxReport } from "../../src/operations/reports/InboxReport.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import * as OneStatementClaim from "../../src/postgres/fast/OneStatementClaim.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import * as Retention from "../../src/platform/Retention.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "./Counters.ts"
import * as DatabaseClock from "./DatabaseClock.ts"
import { TestDatabase } from "./TestDatabase.ts"
import * as TestProcess from "./TestProcess.ts"

export const topic = Counters.topic

/** Brings a time at which the marks are past their retention, and drops them as upkeep does. */
export const dropMarks = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* DatabaseClock.install
  yield* DatabaseClock.advance("10 years")
  yield* Retention.forget("processed_events", 8)
  yield* sql`DELETE FROM processed_events`
})

/** A consumer's steps, in any composition. */
export type Steps = Layer.Layer<
  ApplySlice | Holds | HoldRetries,
  never,
  Inbox | PgClient.PgClient | SqlClient.SqlClient
>

/** The plain steps, which park events that can't be applied: each slice in a transaction of its own. */
export const plainSteps = ApplySlice.layer.pipe(Layer.provideMerge(Parking.layer))

/** The steps of one process on a database of its own. */
export const processWith = (steps: Steps) =>
  Layer.mergeAll(steps, AppliedEvents.layer, InboxDeadLetters.layer, InboxReport.layer).pipe(
    Layer.provideMerge(Inbox.layer),
    Layer.provideMerge(TestProcess.broker),
    Layer.provideMerge(Layer.effectDiscard(Counters.makeTables)),
    Layer.provideMerge(TestProcess.platform),
    Layer.provideMerge(TestDatabase.layer),
    Layer.provideMerge(TestProcess.quiet)
  )

/** The steps of one more process on the same database. */
export const againWith = (steps: Steps) =>
  Layer.unwrap(
    Effect.map(TestDatabase, (database) =>
      steps.pipe(
        Layer.provideMerge(Inbox.layer),
        Layer.provideMerge(TestProcess.platform),
        Layer.provide(Layer.succeed(TestDatabase, database)),
        // Without `fresh` these would be the steps that the process already has.
        Layer.fresh
      )
    )
  )

/** With the service's fast path. Slices are not coalesced, so a test decides the bounds of a transaction. */
const steps = Layer.provide(plainSteps, OneStatementClaim.layer)
export const process = processWith(steps)
export const again = againWith(steps)

/** The id of an event, the same whenever it is asked for. */
export const idOf = (aggregateId: string, version: number): string => {
  const hex = createHash("sha256").update(`${aggregateId}/${version}`).digest("hex")
  return `01a1fd40-${hex.slice(0, 4)}-7${hex.slice(4, 7)}-8${hex.slice(7, 10)}-${hex.slice(10, 22)}`
}

/** A record as the outbox sends it. */
export const record = (
  aggregateId: string,
  version: number,
  { data = {}, aggregateType = "Counter" }: { readonly data?: unknown; readonly aggregateType?: string } = {}
) => ({
  key: aggregateId,
  headers: { "event-id": idOf(aggregateId, version) },
  value: new TextEncoder().encode(
    JSON.stringify({
      eventId: idOf(aggregateType === "Counter" ? aggregateId : `${aggregateType} ${aggregateId}`, version),
      eventType: "Counted",
      schemaVersion: 1,
      occurredAt: "2026-01-01T12:00:00.000Z",
      traceId: "0".repeat(32),
      aggregateType,
      aggregateId,
      aggregateVersion: version,
      data
    })
  )
})

/** A record that is no event. */
export const garbage = (key: string | null, text = "{broken") => ({
  key,
  headers: {},
  value: new TextEncoder().encode(text)
})

export type Sent = Omit<ConsumedRecord, "offset">

/** A partition in memory: it gives each record the next offset, and remembers the committed one. */
export const makePartition = (partition = 0) => {
  let next = 0n
  const state = { committed: 0n }
  return {
    state,
    /** The slice of these records, at the end of the partition. */
    slice: (records: ReadonlyArray<Sent>): Slice => {
      const [first, ...rest] = records.map((one) => ({ ...one, offset: next++ }))
      const end = next
      return {
        topic,
        partition,
        records: [first!, ...rest],
        commit: Effect.sync(() => {
          state.committed = end
        })
      }
    }
  }
}

/** A subscriber that writes a row of effect for each event. For an event in `broken` it fails with the error there. */
export const makeSubscriber = (name: string, firstSight: Subscriber["firstSight"] = "from-version-1") => {
  const broken = new Map<string, Effect.Effect<never, unknown, Transaction>>()
  const handled: Array<string> = []
  const subscriber: Subscriber = {
    name,
    topic,
    firstSight,
    handle: Effect.fnUntraced(function* ({ aggregateId, aggregateVersion }) {
      const { sql } = yield* Transaction
      handled.push(`${aggregateId}/${aggregateVersion}`)
      yield* sql`INSERT INTO effects (consumer, id, version) VALUES (${name}, ${aggregateId}, ${aggregateVersion}::int4)`
      const failure = broken.get(`${aggregateId}/${aggregateVersion}`)
      if (failure !== undefined) return yield* failure
    })
  }
  return { subscriber, broken, handled }
}

/** Runs the slice of these records through the consumer. */
export const deliver = (subscriber: Subscriber, slice: Slice) =>
  Effect.flatMap(ApplySlice, ({ run }) => run(subscriber, slice))

/** Runs rounds of attempts at the consumer's holds, whose due times it brings forward. */
export const retryAll = (subscriber: Subscriber, times = 1) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { retryHeld } = yield* HoldRetries
    for (let time = 0; time < times; time++) {
      yield* sql`UPDATE inbox_holds SET next_attempt_at = clock_now() WHERE next_attempt_at IS NOT NULL`
      yield* retryHeld(subscriber)
    }
  })

/** Puts an event among the outbox's dead letters, as if it had never been sent. */
export const buryInOutbox = (aggregateId: string, version: number, status: "dead" | "discarded") =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`
      INSERT INTO outbox_dead_letters (lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,
        aggregate_version, occurred_at, trace_id, span_id, record_bytes, data, status, attempts, history, ended_at)
      VALUES (${laneOf(aggregateId)}::int2, ${version}::int8, ${idOf(aggregateId, version)}::uuid, ${topic}, 'Counted', 1::int2, 'Counter',
        ${aggregateId}, ${version}::int4, clock_now(), ${"0".repeat(32)}, ${"0".repeat(16)}, 100, '{}'::json, ${status}, 1, '[]'::jsonb,
        clock_now())`
  )

/** The effects of a consumer on an aggregate, in the order in which they were written. */
export const effectsOf = (consumer: string, id: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly version: number }>`
      SELECT version FROM effects WHERE consumer = ${consumer} AND id = ${id} ORDER BY position`
    return rows.map(({ version }) => version)
  })

/** The hold of a consumer on an aggregate. */
export const holdOn = (consumer: string, id: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{
      readonly status: string
      readonly attempts: number
      readonly eventId: string
      readonly error: string | null
      readonly history: number
      readonly waitMillis: number | null
    }>`
      SELECT status, attempts, event_id AS "eventId", last_error AS error, jsonb_array_length(history) AS history,
             (extract(epoch FROM next_attempt_at - clock_now()) * 1000)::float8 AS "waitMillis"
      FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id = ${id}`
    return row
  })

/** The ids of the aggregate's parked events, in the order in which they are applied. */
export const parkedOf = (consumer: string, id: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly eventId: string }>`
      SELECT event_id AS "eventId" FROM inbox_parked WHERE consumer_name = ${consumer} AND aggregate_id = ${id}
      ORDER BY position, broker_offset`
    return rows.map(({ eventId }) => eventId)
  })

/** The ids that are marked as applied by the consumer. */
export const markedOf = (consumer: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly id: string }>`
      SELECT event_id::text AS id FROM processed_events WHERE consumer_name = ${consumer}`
    return new Set(rows.map(({ id }) => id))
  })

/** Every row of a consumer in any table, for tests that compare all of them before and after. */
export const everything = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return {
    effects: yield* sql`SELECT * FROM effects ORDER BY position`,
    cursors: yield* sql`SELECT * FROM consumer_cursors ORDER BY 1, 2`,
    holds: yield* sql`SELECT * FROM inbox_holds ORDER BY 1, 2`,
    parked: yield* sql`SELECT * FROM inbox_parked ORDER BY 1, 4`,
    letters: yield* sql`SELECT * FROM inbox_dead_letters ORDER BY 1, 4`
  }
})
