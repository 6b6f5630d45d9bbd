/** The doctor's look at a database that is behind its topic: the newest records first, however many there are. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as BehindTopic from "../../../src/application/doctor/BehindTopic.ts"
import * as EmbeddedTopicReader from "../../../src/brokers/embedded/EmbeddedTopicReader.ts"
import { QueueSettings } from "../../../src/outbox/Queue.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

/** A topic of so many records in two partitions, and a third one without any. Each record is the first event of an order, and all but the last ones are of orders that are here. */
const topicOf = (records: number, lost: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO broker_topics (topic, partitions) VALUES ('orders', 3)`
    yield* sql`
      CREATE TABLE made AS
      SELECT n % 2 AS partition, n / 2 AS record_offset, n < ${records - lost}::int4 AS is_here,
             (lpad(to_hex((extract(epoch FROM clock_now()) * 1000)::int8 - ${records}::int4 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid AS event_id,
             ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS order_id
      FROM generate_series(0, ${records - 1}::int4) AS n`
    yield* sql`
      INSERT INTO broker_partitions (topic, partition, next_offset)
      SELECT 'orders', p, (SELECT count(*) FROM made WHERE partition = p) FROM generate_series(0, 2) AS p`
    yield* sql`
      INSERT INTO broker_log
      SELECT 'orders', partition, record_offset, order_id, convert_to(json_build_object('eventId', event_id, 'eventType', 'OrderPlaced',
               'schemaVersion', 1, 'occurredAt', '2026-01-01T00:00:00.000Z', 'traceId', repeat('0', 32), 'aggregateType', 'Order',
               'aggregateId', order_id, 'aggregateVersion', 1, 'data', json_build_object())::text, 'UTF8'), json_build_object('event-id', event_id), clock_now()
      FROM made`
    yield* sql`
      INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
                             span_id, data, broker_partition, broker_offset, published_at)
      SELECT event_id, 'orders', 'OrderPlaced', 1, 'Order', order_id, 1, clock_now(), repeat('0', 32), repeat('0', 16), '{}', partition,
             record_offset, clock_now()
      FROM made WHERE is_here`
    yield* sql`
      INSERT INTO orders SELECT order_id, 'c', 'EUR', 'pending', 1, 1, clock_now(), clock_now() FROM made WHERE is_here`
    // So are tables that a restore has made, once Postgres has looked through them.
    yield* sql`VACUUM ANALYZE event_log`
  })

const look = (archive = true) =>
  BehindTopic.check(["billing"]).run.pipe(
    Effect.provide(EmbeddedTopicReader.layer),
    Effect.provideServiceEffect(
      QueueSettings,
      Effect.map(QueueSettings, (settings) => ({ ...settings, archive }))
    )
  )

const world = TestDatabase.layerPool.pipe(Layer.fresh)

it.live(
  "on a large topic all lost events are found at its ends, and no other record is read",
  () =>
    Effect.gen(function* () {
      // Read whole, they would take minutes.
      const records = 390_000
      yield* topicOf(records, 2_597)
      const found = yield* look()
      assert.strictEqual(found._tag, "Told")
      if (found._tag !== "Told") return
      assert.strictEqual(found.told, "the database knows the events of 2,597 of 390,000 records, the newest")
      assert.match(found.findings[0]!.problem, /: 2,597 events of 2,597 orders are there and not here/)

      // Without an archive only the topic tells where to begin.
      const without = yield* look(false)
      assert.strictEqual(without._tag, "Told")
      if (without._tag !== "Told") return
      assert.strictEqual(without.told, "the database knows the events of 2,000 of 390,000 records, the newest")
      assert.match(without.findings[0]!.problem, /: 2,000 events of 2,000 orders are there and not here/)

      // Known again, nothing is read.
      const sql = yield* SqlClient.SqlClient
      yield* sql`INSERT INTO orders SELECT order_id, 'c', 'EUR', 'pending', 1, 1, clock_now(), clock_now() FROM made WHERE NOT is_here`
      assert.deepInclude(yield* look(), { findings: [] })
      // The service runs on: its newest events follow lost ones of the archive.
      yield* sql`
        INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
                               span_id, data, broker_partition, broker_offset, published_at)
        SELECT event_id, 'orders', 'OrderPlaced', 1, 'Order', order_id, 1, clock_now(), repeat('0', 32), repeat('0', 16), '{}', partition,
               record_offset, clock_now()
        FROM made WHERE record_offset > ${records / 2 - 3}::int4`
      yield* sql`DELETE FROM orders USING made WHERE id = order_id AND record_offset = ${records / 2 - 100}::int4`
      const gap = yield* look()
      assert.match(gap._tag === "Told" ? gap.findings[0]!.problem : "", /: 2 events of 2 orders are there and not here/)
    }).pipe(Effect.scoped, Effect.provide(world)),
  240_000
)

it.live(
  "another topic than the archive's is told, also one that is shorter than it",
  () =>
    Effect.gen(function* () {
      yield* topicOf(2_000, 0)
      const sql = yield* SqlClient.SqlClient
      assert.deepInclude(yield* look(), { told: "the archive has the last records of each partition", findings: [] })
      yield* sql`DELETE FROM broker_log WHERE record_offset >= 20`
      yield* sql`UPDATE broker_partitions SET next_offset = 20 WHERE next_offset > 0`
      yield* sql`DELETE FROM orders USING made WHERE id = order_id AND record_offset < 20`
      yield* sql`DELETE FROM event_log AS l USING made WHERE l.event_id = made.event_id AND record_offset < 20`
      const found = yield* look()
      assert.match(
        found._tag === "Told" ? found.findings[0]!.problem : "",
        /: 40 events of 40 orders .* KAFKA_PREFIX is another installation's$/
      )
    }).pipe(Effect.scoped, Effect.provide(world)),
  240_000
)
