/** The statement of marks: which rows it takes, and how Postgres plans it. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { allLanes, Lane } from "../../src/outbox/Lane.ts"
import { type LanePart, Queue, type QueuedEvent } from "../../src/outbox/Queue.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** Prepared statements belong to a connection. */
const oneConnection = Layer.unwrap(Effect.map(TestDatabase, ({ url }) => PgClient.layer({ url, maxConnections: 1 })))

const everything: ReadonlyArray<LanePart> = allLanes.map((lane) => ({ lane, events: 1_000, bytes: 900_000 }))

/** Writes an event into each of these lanes, in this order. */
const write = Effect.fnUntraced(function* (...lanes: ReadonlyArray<number>) {
  const sql = yield* SqlClient.SqlClient
  for (const lane of lanes)
    yield* sql`
      INSERT INTO outbox_events (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                 occurred_at, trace_id, span_id, lane, record_bytes, data)
      VALUES (gen_random_uuid(), 'orders', 'Happened', 1, 'Order', ${`of lane ${lane}`}, 1, clock_now(),
              repeat('a', 32), repeat('b', 16), ${lane}::int2, 100, '{}')`
})

const empty = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DELETE FROM outbox_events`
  yield* sql`DELETE FROM event_log`
})

const fetched = Effect.gen(function* () {
  const queue = yield* Queue
  return (yield* queue.fetch(everything)).flatMap(({ events }) => events)
})

layer(Queue.layer.pipe(Layer.provideMerge(oneConnection), Layer.provide(TestDatabase.layer)))("marks", (it) => {
  it.effect("a mark archives each event at its own partition and offset, whatever the order of its runs", () =>
    Effect.gen(function* () {
      yield* empty
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      yield* write(5, 3, 5, 3, 4)
      const events = yield* fetched
      const run = (lane: number, partition: number, baseOffset: bigint) => ({
        lane: Lane.make(lane),
        topic: "orders",
        events: events.filter((event) => event.lane === lane),
        receipt: { partition, baseOffset }
      })
      yield* queue.mark([run(5, 1, 70n), run(3, 2, 40n)])
      assert.deepStrictEqual(
        (yield* fetched).map(({ lane }) => Number(lane)),
        [4]
      )
      const archived = yield* sql`
        SELECT event_id::text AS id, broker_partition AS partition, broker_offset::int4 AS offset FROM event_log ORDER BY partition, "offset"`
      const ids = (lane: number) => run(lane, 0, 0n).events.map(({ eventId }) => eventId)
      assert.deepStrictEqual(archived, [
        { id: ids(5)[0], partition: 1, offset: 70 },
        { id: ids(5)[1], partition: 1, offset: 71 },
        { id: ids(3)[0], partition: 2, offset: 40 },
        { id: ids(3)[1], partition: 2, offset: 41 }
      ])
    })
  )

  it.effect("a mark leaves a row alone that lies where a marked one was", () =>
    Effect.gen(function* () {
      yield* empty
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      yield* sql`VACUUM outbox_events`
      yield* write(7)
      const events = yield* fetched
      const mark = queue.mark([
        { lane: Lane.make(7), topic: "orders", events, receipt: { partition: 0, baseOffset: 0n } }
      ])
      yield* mark
      yield* sql`VACUUM outbox_events`
      yield* write(7)
      const [later] = yield* fetched
      assert.strictEqual(later!.ctid, events[0]!.ctid, "the new event lies in the same place")
      yield* mark
      assert.lengthOf(yield* fetched, 1)
    })
  )

  it.effect("a row that has moved since its fetch stays, and the next fetch finds it", () =>
    Effect.gen(function* () {
      yield* empty
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      yield* write(7, 7)
      const events = yield* fetched
      const run = { lane: Lane.make(7), topic: "orders", receipt: { partition: 0, baseOffset: 0n } }
      yield* sql`UPDATE outbox_events SET record_bytes = 101 WHERE seq = ${events[1]!.seq}::int8`
      yield* queue.mark([{ ...run, events }])
      const again = yield* fetched
      assert.deepStrictEqual(
        again.map(({ seq }) => seq),
        [events[1]!.seq]
      )
      yield* queue.mark([{ ...run, events: again }])
      assert.lengthOf(yield* fetched, 0)
      assert.lengthOf(yield* sql`SELECT FROM event_log`, 2)
    })
  )

  it.effect("all marks are one statement, which is planned once", () =>
    Effect.gen(function* () {
      yield* empty
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      const run = (lane: Lane, count: number) => ({
        lane,
        topic: "orders",
        // Published by another process: the mark finds nothing.
        events: Array.from({ length: count }, (_, index) => ({ ...event, lane, seq: BigInt(lane * 100 + index + 1) })),
        receipt: { partition: 0, baseOffset: 0n }
      })
      yield* write(0)
      const [event] = (yield* fetched) as [QueuedEvent]
      yield* queue.mark([run(Lane.make(9), 0)])
      for (const lanes of [1, 2, 33, 64])
        yield* queue.mark(allLanes.slice(1, lanes + 1).map((lane) => run(lane, lanes)))
      const marks =
        yield* sql`SELECT 1 AS one FROM pg_prepared_statements WHERE statement LIKE 'WITH%DELETE FROM outbox_events%'`
      assert.lengthOf(marks, 1)
    })
  )
})
