/** The search of events: wherever they are, by every filter, page by page, and without reading the archive from end to end. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { EventSearch, type Filter, lookLimit } from "../../src/operations/reports/EventSearch.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const world = EventSearch.layer.pipe(Layer.provideMerge(TestDatabase.layerPool))

/** An id of a moment so many seconds ago. */
const idAgo = (seconds: number, rest: string) =>
  `overlay(uuid_v7_floor_at(clock_now() - ${seconds} * interval '1 second')::text PLACING '7000-8000-${rest.padStart(12, "0")}' FROM 15)::uuid`

interface Written {
  readonly aggregate: string
  readonly version: number
  readonly ago: number
  readonly type?: string
  readonly topic?: string
  readonly trace?: string
}

/** Writes an event into a table, and returns its id. */
const write = (
  table: "outbox_events" | "outbox_parked" | "outbox_dead_letters" | "event_log",
  { aggregate, ago, topic = "orders", trace = "0", type = "OrderPlaced", version }: Written,
  more: Readonly<Record<string, string>> = {}
) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const all: Readonly<Record<string, string>> = {
      event_id: idAgo(ago, String(version)),
      topic: `'${topic}'`,
      event_type: `'${type}'`,
      schema_version: "1",
      aggregate_type: "'Order'",
      aggregate_id: `'${aggregate}'`,
      aggregate_version: String(version),
      occurred_at: `clock_now() - ${ago} * interval '1 second'`,
      trace_id: `'${trace.repeat(32)}'`,
      span_id: `'${"0".repeat(16)}'`,
      data: `'{}'`,
      ...(table === "event_log"
        ? { broker_partition: "3", broker_offset: "42", published_at: "clock_now()" }
        : { lane: String(laneOf(aggregate)), record_bytes: "100" }),
      ...more
    }
    const [row] = yield* sql.unsafe<{ readonly id: string }>(
      `INSERT INTO ${table} (${Object.keys(all).join(", ")}) VALUES (${Object.values(all).join(", ")}) RETURNING event_id::text AS id`
    )
    return row!.id
  })

const hold = (aggregate: string, seq: number, eventId: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, next_attempt_at, held_at)
      VALUES ('Order', ${aggregate}, ${laneOf(aggregate)}, 'orders', ${eventId}::uuid, ${seq}, 1, clock_now(), clock_now())`
  })

const found = (filter: Filter, limit = 50) =>
  Effect.map(
    EventSearch.use((search) => search.search(filter, { limit })),
    ({ items }) =>
      items.map(({ aggregateId, aggregateVersion, status }) => `${aggregateId}/${aggregateVersion} ${status}`)
  )

it.live("finds events in each state, by each filter, the newest first", () =>
  Effect.gen(function* () {
    const published = yield* write("event_log", { aggregate: "a", version: 1, ago: 500, trace: "a" })
    yield* write("event_log", { aggregate: "a", version: 2, ago: 400, type: "OrderPaid", topic: "others" })
    const queued = yield* write("outbox_events", { aggregate: "a", version: 3, ago: 300, trace: "a" })
    yield* write(
      "outbox_dead_letters",
      { aggregate: "b", version: 1, ago: 200 },
      {
        seq: "1",
        status: "'dead'",
        attempts: "10",
        history: "'[]'",
        ended_at: "clock_now()"
      }
    )
    const head = "0192a000-0000-7000-8000-000000000000"
    yield* hold("c", 2, head)
    yield* write("outbox_parked", { aggregate: "c", version: 1, ago: 100 }, { seq: "2", event_id: `'${head}'` })
    yield* write("outbox_parked", { aggregate: "c", version: 2, ago: 90 }, { seq: "3" })

    const all = ["c/2 parked", "b/1 dead", "a/3 queued", "a/2 published", "a/1 published"]
    assert.deepStrictEqual(yield* found({ sinceSeconds: 3_600 }), all)
    // The head's id is of another year: only a search without a time finds it.
    assert.deepStrictEqual(yield* found({}), [...all, "c/1 retrying"])
    const searches: ReadonlyArray<readonly [Filter, ReadonlyArray<string>]> = [
      [{ eventId: published }, ["a/1 published"]],
      [{ eventId: queued.toUpperCase() }, ["a/3 queued"]],
      [{ aggregateIds: ["a"] }, all.slice(2)],
      [{ aggregateIds: ["b", "c"] }, ["c/2 parked", "b/1 dead", "c/1 retrying"]],
      [{ aggregateIds: [] }, []],
      [{ traceId: "a".repeat(32), sinceSeconds: 3_600 }, ["a/3 queued", "a/1 published"]],
      [{ traceId: "a".repeat(32), aggregateIds: ["a"] }, ["a/3 queued", "a/1 published"]],
      [{ type: "OrderPaid", sinceSeconds: 3_600 }, ["a/2 published"]],
      [{ topic: "others", sinceSeconds: 3_600 }, ["a/2 published"]],
      [{ status: "published" }, ["a/2 published", "a/1 published"]],
      [{ status: "dead" }, ["b/1 dead"]],
      // Few wait, so they are read one by one.
      [{ status: "parked", type: "OrderPlaced" }, ["c/2 parked"]],
      [{ sinceSeconds: 350 }, ["c/2 parked", "b/1 dead", "a/3 queued"]],
      [{ sinceSeconds: 3_600, untilSeconds: 250 }, all.slice(2)]
    ]
    for (const [filter, expected] of searches) {
      assert.deepStrictEqual(yield* found(filter), expected, JSON.stringify(filter))
    }
  }).pipe(Effect.provide(world))
)

it.live("pages lose nothing and repeat nothing", () =>
  Effect.gen(function* () {
    const { search } = yield* EventSearch
    for (let index = 1; index <= 7; index++) {
      yield* write(index % 2 === 0 ? "event_log" : "outbox_events", {
        aggregate: "a",
        version: index,
        ago: 700 - index
      })
    }
    for (const filter of [{}, { aggregateIds: ["a"] }, { type: "OrderPlaced", sinceSeconds: 3_600 }]) {
      const versions: Array<number> = []
      let cursor: string | undefined
      let pages = 0
      do {
        const page = yield* search(filter, { limit: 3, cursor })
        versions.push(...page.items.map(({ aggregateVersion }) => aggregateVersion))
        cursor = page.nextCursor ?? undefined
        pages++
      } while (cursor !== undefined)
      assert.deepStrictEqual(versions, [7, 6, 5, 4, 3, 2, 1])
      assert.strictEqual(pages, 3)
    }
  }).pipe(Effect.provide(world))
)

it.live("a filter without an index needs a time, and says so", () =>
  Effect.gen(function* () {
    const { search } = yield* EventSearch
    const error = yield* Effect.flip(search({ traceId: "a".repeat(32), type: "OrderPaid" }, { limit: 1 }))
    assert.deepStrictEqual(error.filters, ["trace id", "type"])
    assert.include(error.message, "trace id and type")
    assert.include(error.message, "since")
    // A bound on the other side alone would read all that is older.
    assert.strictEqual(
      (yield* Effect.flip(search({ topic: "orders", untilSeconds: 1 }, { limit: 1 })))._tag,
      "SearchTooWide"
    )
  }).pipe(Effect.provide(world))
)

it.live(
  "a page looks at a bounded number of events, and its cursor goes on behind them",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { search } = yield* EventSearch
      const rare = yield* write("event_log", { aggregate: "rare", version: 1, ago: 3_000, type: "Rare" })
      yield* sql`
        INSERT INTO event_log
        SELECT overlay(uuid_v7_floor_at(clock_now() - interval '2000 seconds')::text PLACING
                       '7000-8000-' || lpad(to_hex(n), 12, '0') FROM 15)::uuid,
               'orders', 'Common', 1, 'Order', 'many-' || n, 1, clock_now() - interval '2000 seconds', repeat('0', 32),
               repeat('0', 16), '{}', 0, n, clock_now(), NULL
        FROM generate_series(1, ${lookLimit}::int4) AS n`
      yield* sql`ANALYZE event_log`
      const first = yield* search({ type: "Rare", sinceSeconds: 86_400 }, { limit: 10 })
      assert.deepStrictEqual(first.items, [])
      assert.isNotNull(first.nextCursor)
      const second = yield* search({ type: "Rare", sinceSeconds: 86_400 }, { limit: 10, cursor: first.nextCursor })
      assert.deepStrictEqual(
        second.items.map(({ eventId }) => eventId),
        [rare]
      )
      assert.isNull(second.nextCursor)
      // The archive is not read for an aggregate's or an event's id.
      yield* sql`SELECT pg_stat_force_next_flush()`
      const scans = Effect.map(
        sql<{ readonly rows: bigint }>`
          SELECT sum(seq_tup_read)::int8 AS rows FROM pg_stat_user_tables WHERE relname LIKE 'event_log%'`,
        ([row]) => Number(row!.rows)
      )
      const before = yield* scans
      assert.strictEqual((yield* search({ aggregateIds: ["many-7"] }, { limit: 10 })).items.length, 1)
      assert.strictEqual((yield* search({ eventId: rare }, { limit: 10 })).items.length, 1)
      assert.strictEqual((yield* search({}, { limit: 10 })).items.length, 10)
      yield* sql`SELECT pg_stat_force_next_flush()`
      assert.isAtMost((yield* scans) - before, lookLimit / 100)
    }).pipe(Effect.provide(world)),
  60_000
)
