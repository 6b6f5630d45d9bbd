/** Queue rows that are inserted by hand: the INSERT refuses a row that no dispatcher could send, or no consumer could read. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestDatabase } from "../support/TestDatabase.ts"

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

it.live("a valid row is accepted, and a row with any invalid column is refused", () =>
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
