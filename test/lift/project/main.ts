/**
 * A service that is not ours: counters instead of orders, on the mechanism alone (its rooms
 * copied as they are). It writes through the outbox, dispatches, consumes, and prints what its consumer saw.
 */
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Redacted, Schedule } from "effect"
import * as EmbeddedBroker from "./brokers/embedded/EmbeddedBroker.ts"
import * as Consumer from "./inbox/Consumer.ts"
import { Inbox } from "./inbox/Inbox.ts"
import type { Subscriber } from "./inbox/Subscriber.ts"
import { Dispatcher } from "./outbox/Dispatcher.ts"
import { LaneWorkers } from "./outbox/LaneWorkers.ts"
import { Outbox } from "./outbox/Outbox.ts"
import { OutboxQueue } from "./outbox/OutboxQueue.ts"
import { Publisher } from "./outbox/Publisher.ts"
import { LaneWakeup } from "./outbox/LaneWakeup.ts"
import { ControlConnection } from "./platform/ControlConnection.ts"
import { Ids } from "./platform/Ids.ts"
import { DatabaseSettings } from "./platform/DatabaseSettings.ts"
import * as Database from "./postgres/Database.ts"
import { Migrated, setOf } from "./postgres/Migrations.ts"
import { Ownership } from "./platform/Ownership.ts"
import { Transaction } from "./platform/Transaction.ts"
import { Wakeups } from "./platform/Wakeups.ts"
import { Fibers } from "./platform/Supervised.ts"

const tables = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* sql`CREATE TABLE counters (id text PRIMARY KEY, value int NOT NULL, version int NOT NULL)`
  yield* sql`CREATE TABLE seen (id text PRIMARY KEY, value int NOT NULL)`
})

/** The aggregate's change and its event: one statement, inside whatever transaction is open. */
const count = Effect.fn("count")(function* (id: string) {
  const { sql } = yield* Transaction
  const outbox = yield* Outbox
  return yield* outbox.save(
    { topic: "counters", aggregateType: "Counter", aggregateId: id },
    [{ eventType: "Counted", schemaVersion: 1, data: { by: 1 } }],
    sql<{ readonly version: number }>`
      INSERT INTO counters VALUES (${id}, 1, 1)
      ON CONFLICT (id) DO UPDATE SET value = counters.value + 1, version = counters.version + 1
      RETURNING version`
  )
})

const watcher: Subscriber = {
  name: "watcher",
  topic: "counters",
  firstSight: "from-version-1",
  handle: Effect.fn("watcher.handle")(function* (event) {
    const { sql } = yield* Transaction
    yield* sql`
      INSERT INTO seen VALUES (${event.aggregateId}, 1)
      ON CONFLICT (id) DO UPDATE SET value = seen.value + 1`
  })
}

const service = Layer.mergeAll(LaneWorkers.layer, Consumer.layer(watcher)).pipe(
  Layer.provideMerge(Layer.mergeAll(Outbox.layer, Dispatcher.layer, Consumer.steps)),
  Layer.provideMerge(Layer.mergeAll(OutboxQueue.layer, Publisher.layer)),
  Layer.provideMerge(Layer.mergeAll(LaneWakeup.layer, Inbox.layer, EmbeddedBroker.layer)),
  Layer.provideMerge(Ownership.layer),
  Layer.provideMerge(Wakeups.layer),
  Layer.provideMerge(ControlConnection.layer),
  Layer.provideMerge(Layer.merge(Fibers.layer, Ids.layer)),
  Layer.provideMerge(Migrated.layer([setOf(import.meta.dirname, "mechanism")])),
  Layer.provideMerge(Database.layer),
  Layer.provide(DatabaseSettings.layerOf({ url: Redacted.make(process.argv[2] ?? "") }))
)

const program = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* tables
  yield* Effect.forEach(["a", "b", "a", "c", "a", "b"], (id) => Transaction.run(count(id)), { discard: true })
  const seen = yield* sql<{ readonly id: string; readonly value: number }>`SELECT id, value FROM seen ORDER BY id`.pipe(
    Effect.repeat({
      until: (rows) => rows.reduce((sum, row) => sum + row.value, 0) === 6,
      schedule: Schedule.spaced("20 millis")
    }),
    Effect.timeout("30 seconds")
  )
  yield* Console.log(JSON.stringify(seen))
})

void Effect.runPromise(Effect.provide(program, service))
