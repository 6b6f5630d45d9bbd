/** Every retention counts days of 24 hours, also in the week in which the clocks of the session's zone go forward and a day has 23. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import * as Idempotency from "../../src/application/Idempotency.ts"
import * as EmbeddedLog from "../../src/brokers/embedded/EmbeddedLog.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Retention from "../../src/platform/Retention.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as TaskCleanup from "../../src/tasks/TaskCleanup.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const days = 3
/** In Berlin the 25th of March 2040 has 23 hours. Three calendar days after this moment are 71 hours. */
const written = "2040-03-23 10:30:00Z"
const lastKept = "2040-03-26 10:30:00Z"
const firstDropped = "2040-03-26 10:30:00.001Z"

/** A database whose sessions are in Berlin. */
const berlin = Layer.unwrap(
  Effect.gen(function* () {
    const { name, url } = yield* TestDatabase
    yield* TestDatabase.administer(`ALTER DATABASE ${name} SET timezone = 'Europe/Berlin'`)
    return Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url })))
  })
).pipe(Layer.provide(TestDatabase.layer))

/** The clock stands still at this moment. */
const standAt = Effect.fnUntraced(function* (time: string) {
  const sql = yield* PgClient.PgClient
  yield* sql.unsafe(
    `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT timestamptz '${time}' $$`
  )
})

/** Each kind of row with a retention: the statement that inserts one, and the count of those past their retention. */
const kept = [
  {
    what: "a finished task",
    write: `
      INSERT INTO outbox_tasks (task_id, task_type, state, payload, priority, enqueued_at, execute_at, attempts, token, finished_at)
      VALUES (gen_random_uuid(), 'plain', 'completed', '{}', 0, '${written}', '${written}', 1, 1, '${written}')`,
    expired: [TaskCleanup.countExpired(days), TaskCleanup.deleteExpired(days)]
  },
  {
    what: "a record of the embedded broker",
    write: `
      WITH topic AS (INSERT INTO broker_topics (topic, partitions) VALUES ('t', 1) RETURNING topic),
           partition AS (INSERT INTO broker_partitions (topic, partition, next_offset) SELECT topic, 0, 1 FROM topic)
      INSERT INTO broker_log (topic, partition, record_offset, record_key, record_value, record_headers, appended_at)
      VALUES ('t', 0, 0, 'k', '', '{}', '${written}')`,
    expired: [EmbeddedLog.countExpired(days), EmbeddedLog.dropExpired(days)]
  },
  {
    what: "an idempotency key",
    write: `
      INSERT INTO idempotency_keys (method, path, idempotency_key, body_hash, subject_id, created_at)
      VALUES ('POST', '/orders', 'k', sha256(''), gen_random_uuid(), '${written}')`,
    expired: [Idempotency.dropExpired({ dryRun: true }), Idempotency.dropExpired()]
  },
  {
    what: "the mark of an applied event",
    write: `
      INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version) VALUES ('one', 'a', 'Counter', 1)`,
    // Once upkeep may have dropped the mark, the cursor alone makes the event applied.
    expired: [
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const { applied } = yield* AppliedEvents
        yield* Retention.forget("processed_events", days, { margin: "1 hour" })
        const [row] = yield* sql<{ readonly id: string }>`SELECT uuid_v7_floor_at(${written}::timestamptz)::text AS id`
        return (yield* applied(["one"], "a", [{ eventId: row!.id, version: 1 }])).size
      })
    ]
  }
]

for (const { expired, what, write } of kept) {
  it.live(`${what} is kept for three times 24 hours, though the clocks go forward meanwhile`, () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      yield* sql.unsafe(write)
      yield* standAt(lastKept)
      for (const look of expired) assert.strictEqual(yield* look, 0)
      yield* standAt(firstDropped)
      for (const look of expired) assert.strictEqual(yield* look, 1)
    }).pipe(
      Effect.provide(Layer.provideMerge(AppliedEvents.layer, berlin)),
      Effect.provideService(Retention.RetentionSettings, { outboxDays: days, inboxDays: days, taskDays: days }),
      Effect.provideService(Idempotency.IdempotencySettings, { retentionDays: days })
    )
  )
}
