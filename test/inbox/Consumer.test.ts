import { assert, it } from "@effect/vitest"
import { Effect, Exit, Latch, Layer, Metric, Ref, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { analytics } from "../../src/application/subscribers/Analytics.ts"
import { Broker, type Slice } from "../../src/brokers/Broker.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import * as Consumer from "../../src/inbox/Consumer.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import * as Consumers from "../../src/main/Consumers.ts"
import * as EmbeddedProgress from "../../src/brokers/embedded/EmbeddedProgress.ts"
import * as InboxMetrics from "../../src/operations/InboxMetrics.ts"
import { DependencyDown, type Subscriber } from "../../src/inbox/Subscriber.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** One process with these steps on a database of its own. */
const processWith = <A>(steps: Layer.Layer<A, never, Inbox | Layer.Success<typeof TestProcess.platform>>) =>
  steps.pipe(
    Layer.provideMerge(Inbox.layer),
    Layer.provideMerge(TestProcess.broker),
    Layer.provideMerge(Layer.effectDiscard(Counters.makeTables)),
    Layer.provideMerge(TestProcess.platform),
    Layer.provideMerge(TestDatabase.layer),
    Layer.provideMerge(TestProcess.quiet)
  )
/** As in the service: slices are coalesced, and metrics are recorded. */
const consumer = processWith(Consumers.steps)
const plain = processWith(Deliveries.plainSteps)

/** A record as any producer could write it. */
const record = (eventId: string, data: unknown = {}, eventType = "Counted", aggregateId = "a") => ({
  key: aggregateId,
  headers: {},
  value: new TextEncoder().encode(
    JSON.stringify({
      eventId,
      eventType,
      schemaVersion: 1,
      occurredAt: "2026-01-01T12:00:00.000Z",
      traceId: "0".repeat(32),
      aggregateType: "Counter",
      aggregateId,
      aggregateVersion: 1,
      data
    })
  )
})

it.live("health names a dependency that is down, and the consumer is healthy again once the slice is applied", () =>
  Effect.gen(function* () {
    const broker = yield* Broker
    const { states } = yield* Fibers
    const broken = yield* Ref.make(true)
    const handled = yield* Ref.make(0)
    yield* Layer.build(
      Consumer.layer({
        name: "flaky",
        topic: Counters.topic,
        firstSight: "any-version",
        handle: () =>
          Effect.flatMap(Ref.get(broken), (isBroken) =>
            isBroken ? Effect.fail(new DependencyDown({ reason: "out of paper" })) : Ref.update(handled, (n) => n + 1)
          )
      })
    )
    yield* broker.ensureTopic(Counters.topic, 8)
    yield* broker.publish({ topic: Counters.topic, partition: 0, records: [record(randomUUID())] })
    const state = Effect.map(states, (all) => all.find(({ name }) => name === "consumer flaky"))
    yield* Counters.eventually(
      "the failure to show",
      Effect.map(state, (now) => now?.status === "restarting" && now.lastError?.includes("out of paper") === true)
    )
    yield* Ref.set(broken, false)
    yield* Counters.eventually(
      "the recovery to show",
      Effect.map(state, (now) => now?.status === "running")
    )
    assert.strictEqual(yield* Ref.get(handled), 1)
  }).pipe(Effect.scoped, Effect.provide(consumer))
)

it.live("an event whose id another producer spelled in capitals is applied once", () =>
  Effect.gen(function* () {
    const { run } = yield* ApplySlice
    const id = randomUUID()
    const handled = yield* Ref.make(0)
    const subscriber = {
      name: "one",
      topic: Counters.topic,
      firstSight: "any-version" as const,
      handle: () => Ref.update(handled, (n) => n + 1)
    }
    for (const spelling of [id.toUpperCase(), id, id.toUpperCase()]) {
      yield* run(subscriber, slice([record(spelling)]))
    }
    assert.strictEqual(yield* Ref.get(handled), 1)
  }).pipe(Effect.provide(consumer))
)

it.live("slices of several partitions that touch the same revenue rows in opposite orders all apply", () =>
  Effect.gen(function* () {
    const { run } = yield* ApplySlice
    const paid = (currency: string) =>
      record(
        randomUUID(),
        {
          customerId: "ada",
          paymentId: "01a1fd40-8529-7dad-b578-b9cd784ada98",
          amount: { amountMinor: 1, currency }
        },
        "OrderPaid",
        randomUUID()
      )
    const mixed = (first: string, second: string) =>
      Array.from({ length: 20 }, (_, index) => paid(index % 2 === 0 ? first : second))
    const exits = yield* Effect.forEach(
      Array.from({ length: 12 }, (_, index) => (index % 2 === 0 ? mixed("EUR", "USD") : mixed("USD", "EUR"))),
      (records, partition) => Effect.exit(run(analytics, slice(records, partition))),
      { concurrency: 6 }
    )
    assert.isTrue(exits.every(Exit.isSuccess))
    const sql = yield* SqlClient.SqlClient
    assert.deepStrictEqual(
      yield* sql`SELECT currency, amount_minor::int4 AS sum FROM revenue_daily ORDER BY currency`,
      [
        { currency: "EUR", sum: 120 },
        { currency: "USD", sum: 120 }
      ]
    )
    // A deadlock would have been retried, so the test reads Postgres' own count.
    const [row] = yield* sql<{ readonly deadlocks: number }>`
      SELECT deadlocks::int4 AS deadlocks FROM pg_stat_database WHERE datname = current_database()`
    assert.strictEqual(row?.deadlocks, 0)
    // Each slice has a transaction of its own.
  }).pipe(Effect.provide(plain))
)

it.live("a pool connection that gets no answer ends itself, and the next statement takes a new one", () =>
  Effect.gen(function* () {
    const { proxy, url } = yield* TcpProxy.makePostgres((yield* TestDatabase).url)
    const pool = Database.layer.pipe(
      Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: 1 })),
      Layer.provide(Layer.succeed(Database.PoolSettings, { silenceMillis: 500 }))
    )
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      // On a machine that stands still an answer may be late as well; the next attempt takes another connection.
      const answered = Effect.retry(sql`SELECT 1`, { times: 20, schedule: Schedule.spaced("50 millis") })
      yield* answered
      yield* proxy.blackHole()
      const outside = yield* Effect.exit(sql`SELECT 1`)
      assert.isTrue(Exit.isFailure(outside))
      yield* proxy.pass
      yield* answered
      // In a transaction, too, although its ROLLBACK can't be interrupted.
      const inside = yield* Effect.exit(
        Transaction.run(
          Effect.gen(function* () {
            const transaction = yield* Transaction
            yield* proxy.blackHole()
            yield* transaction.sql`SELECT 1`
          })
        )
      )
      assert.isTrue(Exit.isFailure(inside))
      yield* proxy.pass
      yield* answered
    }).pipe(Effect.provide(pool))
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

/** A slice as a broker hands it out; its commit does nothing. */
const slice = (records: ReadonlyArray<ReturnType<typeof record>>, partition = 0): Slice => {
  const [first, ...rest] = records.map((one, index) => ({ ...one, offset: BigInt(index) }))
  return { topic: "orders", partition, records: [first!, ...rest], commit: Effect.void }
}

it.live("a slice that is interrupted because its partition went to another member leaves no age behind", () =>
  Effect.gen(function* () {
    const broker = yield* Broker
    const cutOff = yield* Latch.make()
    const slice: Slice = {
      topic: Counters.topic,
      partition: 0,
      records: [{ ...record(randomUUID()), offset: 0n }],
      commit: Effect.void
    }
    const subscriber: Subscriber = {
      name: "cut-off",
      topic: Counters.topic,
      firstSight: "any-version",
      handle: () => Effect.never
    }
    yield* Layer.build(
      Layer.merge(Consumer.layer(subscriber), InboxMetrics.layer([subscriber])).pipe(
        Layer.provide(EmbeddedProgress.layer),
        Layer.provide(
          Layer.succeed(Broker, {
            ...broker,
            consume: (_, handle) =>
              Effect.andThen(Effect.raceFirst(Effect.exit(handle(slice)), cutOff.await), Effect.never)
          })
        )
      )
    )
    const age = Effect.map(Metric.snapshot, (metrics) => {
      const found = metrics.find(
        ({ attributes, id }) => id === "inbox_lag_seconds" && attributes?.["consumer"] === "cut-off"
      )
      return found?.type === "Gauge" ? Number(found.state.value) : Number.NaN
    })
    yield* Counters.eventually(
      "the slice's age to be reported",
      Effect.map(age, (seconds) => seconds > 0)
    )
    yield* cutOff.open
    yield* Counters.eventually(
      "the age to be gone",
      Effect.map(age, (seconds) => seconds === 0)
    )
  }).pipe(Effect.scoped, Effect.provide(consumer))
)
