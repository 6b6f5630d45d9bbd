/** The end of a process whose consumers have a long backlog, or hang: exit status 0, and no slice half applied. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Random, Redacted, References, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { inject } from "vitest"
import * as ServiceProcess from "../../../src/cli/ServiceProcess.ts"
import { ordersTopic } from "../../../src/domain/Events.ts"
import { laneOf, partitionOf } from "../../../src/outbox/Lane.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as Database from "../../../src/postgres/Database.ts"
import * as Books from "../../soak/consumers/Books.ts"
import * as OrderHistories from "../../soak/consumers/OrderHistories.ts"
import * as Tables from "../../soak/consumers/Tables.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as KafkaMember from "./KafkaMember.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of kafka/ConsumerStop.test.ts ran (stopping consumers under load): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const partitions = 8

const database = Layer.unwrap(
  TestDatabase.useSync(({ url }) =>
    Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: 3, applicationName: "test" })))
  )
).pipe(Layer.provideMerge(TestDatabase.layer), Layer.provideMerge(Layer.succeed(References.MinimumLogLevel, "Error")))

/** A topic with `events` events, and consumers of it. */
const backlog = Effect.fnUntraced(function* (servers: string, events: number) {
  const { url } = yield* TestDatabase
  yield* Tables.listStock
  const prefix = `stop-${randomUUID()}-`
  const { broker } = yield* KafkaMember.makeDirect({ brokers: servers.split(","), prefix })
  yield* broker.ensureTopic(ordersTopic, partitions)
  const histories = OrderHistories.make(yield* Random.Random, 1_000)
  yield* Effect.forEach(
    Map.groupBy([...histories.take(events), ...histories.rest()], ({ key }) => partitionOf(laneOf(key), partitions)),
    Effect.fnUntraced(function* ([partition, records]) {
      for (let from = 0; from < records.length; from += 1_000) {
        const [first, ...rest] = records.slice(from, from + 1_000)
        // Like the dispatcher: after an unknown outcome the whole batch is published again.
        yield* Effect.retry(broker.publish({ topic: ordersTopic, partition, records: [first!, ...rest] }), {
          while: ({ _tag }) => _tag !== "MessageRejected",
          schedule: Schedule.spaced("100 millis")
        })
      }
    }),
    { discard: true }
  )
  const start = Effect.fnUntraced(function* (env: Readonly<Record<string, string>> = {}) {
    return yield* ServiceProcess.start({
      roles: "consumers",
      env: {
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
        KAFKA_BROKERS: servers,
        KAFKA_PREFIX: prefix,
        CONSUMER_SESSION_TIMEOUT_MILLIS: "6000",
        LOG_LEVEL: "Error",
        // The hard stop ends a process that hangs with status 1. Far above the grace, because the machine may stand still.
        SHUTDOWN_HARD_MILLIS: "60000",
        ...env
      }
    })
  })
  return { start, books: Books.read(servers, prefix + ordersTopic, ordersTopic) }
})

/** How many events each consumer has applied. */
const applied = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly name: string; readonly count: number }>`
    SELECT consumer_name AS name, count(*)::int4 AS count FROM processed_events GROUP BY 1`
  return Tables.consumers.map((name) => rows.find((row) => row.name === name)?.count ?? 0)
})

/** Waits for the condition. The bound is the test's own timeout. */
const until = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  Effect.repeat(condition, { until: (holds) => holds, schedule: Schedule.spaced("100 millis") })

/** Waits until the consumers have reached the end of the backlog, and compares all tables. */
const assertWhole = Effect.fnUntraced(function* (books: Books.Books) {
  const sql = yield* SqlClient.SqlClient
  yield* until(Effect.map(applied, (counts) => counts.every((count) => count === books.applied.size)))
  yield* until(
    Effect.map(
      sql<{ readonly count: number }>`SELECT count(*)::int4 AS count FROM inbox_parked`,
      ([row]) => row?.count === books.parked.size * Tables.consumers.length
    )
  )
  assert.deepStrictEqual(yield* Tables.compare(books), [])
})

describe.skipIf(brokers === null)("stopping consumers over a real Kafka", () => {
  const servers = brokers ?? ""

  it.live(
    "SIGTERM in front of a long backlog ends with 0, and leaves no slice half done",
    () =>
      Effect.gen(function* () {
        const { books, start } = yield* backlog(servers, 8_000)
        const truth = yield* books
        const all = truth.applied.size
        for (let turn = 1; turn <= 2; turn++) {
          const before = yield* applied
          const first = yield* start()
          // One consumer may finish before another one has joined its group.
          yield* until(
            Effect.map(applied, (counts) => counts.every((count, index) => count > before[index]! || count === all))
          )
          yield* first.signal("SIGTERM")
          assert.strictEqual(yield* first.exit, 0, first.output())
          if (turn === 1) assert.isTrue((yield* applied).some((count) => count < all))
        }
        yield* start()
        yield* assertWhole(truth)
      }).pipe(Effect.scoped, Random.withSeed(1), Effect.provide(database)),
    300_000
  )

  it.live(
    "a slice that hangs is rolled back, and comes again in the next process: SIGTERM ends with 0",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { books, start } = yield* backlog(servers, 1_000)
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`LOCK TABLE billing_ledger IN ACCESS EXCLUSIVE MODE`
            const first = yield* start({ SHUTDOWN_GRACE_MILLIS: "2000" })
            yield* until(
              Effect.map(
                sql`SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'billing_ledger'::regclass`,
                (rows) => rows.length > 0
              )
            )
            yield* first.signal("SIGTERM")
            assert.strictEqual(yield* first.exit, 0, first.output())
          })
        )
        yield* start()
        yield* assertWhole(yield* books)
      }).pipe(Effect.scoped, Random.withSeed(2), Effect.provide(database)),
    120_000
  )
})
