/**
 * A subscriber with a table of its own. Here each event is sent twice, and one event can't be read: the others are applied once, and
 * the unreadable one is kept for an operator.
 *
 *   npm run example examples/subscriber.ts
 */
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Schedule, Schema } from "effect"
import { randomUUID } from "node:crypto"
import * as EmbeddedBroker from "paid-once/brokers/embedded/EmbeddedBroker"
import { PermanentFailure, type Subscriber } from "paid-once/inbox/Subscriber"
import { InboxReport } from "paid-once/operations/reports/InboxReport"
import { Outbox } from "paid-once/outbox/Outbox"
import * as Plain from "paid-once/plain/Plain"
import * as PlainParking from "paid-once/plain/PlainParking"
import * as FaultInjection from "paid-once/platform/FaultInjection"
import * as Rows from "paid-once/platform/Rows"
import { Transaction } from "paid-once/platform/Transaction"
import { location } from "./Location.ts"

const createTables = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* sql`CREATE TABLE IF NOT EXISTS parcels (id text PRIMARY KEY, place text NOT NULL, scans int NOT NULL)`
})

const readScanned = Schema.decodeUnknownEffect(Schema.Struct({ place: Schema.String }))

/**
 * The database changes of `handle` commit with the mark "applied", and so take place once for each event.
 *
 * After `PermanentFailure` the event is a dead letter at once, since another attempt would fail as well. After `DependencyDown` the
 * partition waits. After any other failure the event is tried again, after a growing wait. Later events of the same aggregate wait behind a
 * failed one; other aggregates go on.
 */
const tracking: Subscriber = {
  name: "tracking",
  topic: "parcels",
  firstSight: "from-version-1",
  handle: Effect.fn("tracking.handle")(function* (event) {
    const { sql } = yield* Transaction
    const { place } = yield* readScanned(event.data).pipe(
      Effect.mapError((error) => new PermanentFailure({ reason: error.message }))
    )
    yield* sql`
      INSERT INTO parcels VALUES (${event.aggregateId}, ${place}, 1)
      ON CONFLICT (id) DO UPDATE SET place = ${place}, scans = parcels.scans + 1`
  })
}

/** An event of an aggregate without a row: `append` takes the version that `save` would take from the row. */
const scan = Effect.fn("scan")(function* (parcel: string, version: number, data: unknown) {
  const outbox = yield* Outbox
  const stream = { topic: "parcels", aggregateType: "Parcel", aggregateId: parcel }
  yield* outbox.append(stream, version, [{ eventType: "Scanned", schemaVersion: 1, data }])
})

/** Looks again until it is so. */
const until = <A, E, R>(look: Effect.Effect<A, E, R>, isSo: (found: A) => boolean) =>
  Effect.timeout(Effect.repeat(look, { until: isSo, schedule: Schedule.spaced("20 millis") }), "60 seconds")

const parcelRow = Rows.first(Schema.Struct({ place: Schema.String, scans: Schema.Int }))

const program = Effect.gen(function* () {
  yield* createTables
  const sql = yield* PgClient.PgClient
  const [good, bad] = [randomUUID(), randomUUID()]
  yield* Transaction.run(scan(bad, 1, { place: 12 }))
  yield* Transaction.run(scan(good, 1, { place: "Lyon" }))
  yield* Transaction.run(scan(good, 2, { place: "Paris" }))

  const row = yield* until(parcelRow(sql`SELECT * FROM parcels WHERE id = ${good}`), (row) => row?.place === "Paris")
  const {
    items: [letter]
  } = yield* until(
    (yield* InboxReport).list(["dead"], { consumer: "tracking", aggregateId: bad }, { limit: 10 }),
    ({ items }) => items.length > 0
  )
  // The second send of an event may come after it was applied.
  const sent = yield* until(
    sql`SELECT FROM broker_log WHERE record_key IN (${good}, ${bad})`,
    (all) => all.length === 6
  )
  yield* Console.log(`The topic has ${sent.length} records of 3 events.`)
  yield* Console.log(`The good parcel is in ${row?.place} after ${row?.scans} scans.`)
  yield* Console.log(`Dead letter, version ${letter?.aggregateVersion}: ${letter?.lastError?.replaceAll(/\s+/g, " ")}`)
})

const twice = { action: "duplicate", times: 100, delayMillis: 0 } as const

const service = Layer.mergeAll(Plain.dispatcher, Plain.consumer(tracking), InboxReport.layer).pipe(
  // Parking: an event that the broker refuses, or that its subscriber can't apply, makes its own aggregate wait, and nothing else.
  Layer.provide([PlainParking.outbox, PlainParking.inbox]),
  Layer.provideMerge(Plain.outbox),
  Layer.provideMerge(EmbeddedBroker.layer),
  Layer.provideMerge(Plain.database()),
  Layer.provide(location),
  Layer.provide(FaultInjection.layer([["dispatcher.before-publish", twice]]))
)

await Effect.runPromise(Effect.provide(program, service))
