/** Rows of the queue that somebody writes by hand: one that no dispatcher could carry, or no consumer read, is refused where it is written. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { readFile } from "node:fs/promises"
import { MessageRejected } from "../../src/brokers/Broker.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import { Lane } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"
import * as Lanes from "../support/Lanes.ts"

const sound = {
  lane: 5,
  event_id: "01a1fd40-0000-7000-8000-000000000000",
  topic: "orders",
  event_type: "Counted",
  schema_version: 1,
  aggregate_type: "Counter",
  aggregate_id: "a",
  aggregate_version: 1,
  occurred_at: "2026-01-01T12:00:00.000Z",
  trace_id: "0".repeat(32),
  span_id: "0".repeat(16),
  record_bytes: 300,
  data: "{}"
}

const write = Effect.fnUntraced(function* (row: Readonly<Record<string, unknown>>) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
                               trace_id, span_id, record_bytes, data)
    SELECT lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
           trace_id, span_id, record_bytes, data
    FROM json_populate_record(NULL::outbox_events, ${JSON.stringify(row)}::text::json)`
})

it.live("a row that nothing is wrong with is taken, and one with anything wrong is not", () =>
  Effect.gen(function* () {
    for (const [column, value] of [
      ["lane", -1],
      ["lane", 64],
      ["topic", ""],
      ["event_type", ""],
      ["schema_version", 0],
      ["aggregate_type", ""],
      ["aggregate_id", ""],
      ["aggregate_id", "a".repeat(501)],
      ["aggregate_type", "€".repeat(334)],
      ["event_type", "a".repeat(501)],
      ["aggregate_version", 0],
      ["trace_id", "0"],
      ["span_id", "0"],
      ["record_bytes", 0],
      ["lane", null],
      ["event_id", null],
      ["data", null]
    ] as const) {
      const error = yield* Effect.flip(write({ ...sound, [column]: value }))
      assert.match(JSON.stringify(error.reason), value === null ? /23502/ : /23514/, `${column} = ${value}`)
    }
    yield* write(sound)
  }).pipe(Effect.provide(TestDatabase.layerPool))
)

it.live("what waits behind a hold since before names had a limit goes back into the queue all the same", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const holds = yield* Holds
    const queue = yield* Queue
    const lane = Lane.make(sound.lane)
    const migration = yield* Effect.promise(() =>
      readFile(`${root}/migrations/mechanism/0013_outbox_names.sql`, "utf8")
    )
    const [limit = ""] = /^ALTER DOMAIN .* ADD CONSTRAINT outbox_name_length .*$/m.exec(migration) ?? []
    yield* sql`ALTER DOMAIN outbox_name DROP CONSTRAINT outbox_name_length`
    const long = { ...sound, aggregate_id: "a".repeat(600), event_type: "e".repeat(700) }
    for (const version of [1, 2]) {
      yield* write({ ...long, aggregate_version: version, event_id: `01a1fd40-0000-7000-8000-00000000000${version}` })
    }
    const [first] = yield* Lanes.fetch(queue, lane, [])
    const rejection = new MessageRejected({ topic: "orders", partition: 0, reason: "too large" })
    assert.strictEqual(yield* holds.hold(lane, first!, rejection), "retrying")
    yield* sql.unsafe(limit)
    assert.isTrue(yield* holds.published({ ...first!, attempts: 1 }, { partition: 0, baseOffset: 0n }))
    const [second] = yield* Lanes.fetch(queue, lane, [])
    assert.strictEqual(second?.aggregateVersion, 2)
    assert.match(JSON.stringify((yield* Effect.flip(write(long))).reason), /23514/)
  }).pipe(Effect.provide(Layer.provideMerge(Layer.mergeAll(Holds.layer, Queue.layer), TestDatabase.layerPool)))
)
