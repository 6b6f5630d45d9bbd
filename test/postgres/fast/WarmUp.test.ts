import { assert, it } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Broker, type Batch as Rehearsed, BrokerUnavailable } from "../../../src/brokers/Broker.ts"
import { type Acknowledged, Queue } from "../../../src/outbox/Queue.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import * as WarmUp from "../../../src/postgres/fast/WarmUp.ts"
import * as Ledger from "../../support/Ledger.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const world = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** The embedded broker, which counts what is published, with a rehearsal of its own. */
const brokerWith = (rehearse: (batch: Rehearsed) => Effect.Effect<void, BrokerUnavailable>, published: Array<string>) =>
  Layer.effect(
    Broker,
    Effect.map(Broker, (broker) =>
      Broker.of({
        ...broker,
        rehearse,
        publish: (batch) =>
          Effect.andThen(
            Effect.sync(() => published.push(batch.topic)),
            broker.publish(batch)
          )
      })
    )
  ).pipe(Layer.provide(TestProcess.broker))

const settings = (limitMillis: number) => Layer.succeed(WarmUp.WarmUpSettings, { topics: [Ledger.topic], limitMillis })

it.live("warming up runs each statement and the broker's rehearsal, and neither sends nor writes", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* Effect.forEach(["one", "two", "three"], (id) => Transaction.run(Ledger.append(id, 2)))
    const queued = sql`SELECT * FROM outbox_events ORDER BY seq`
    const before = yield* queued
    const published: Array<string> = []
    const rehearsed: Array<Rehearsed> = []
    const marked: Array<ReadonlyArray<Acknowledged>> = []
    const fetched: Array<ReadonlyArray<unknown>> = []
    const asked = new Set<string>()
    const watched = Layer.effect(
      Queue,
      Effect.map(Queue, (queue) =>
        Queue.of({
          ...queue,
          fetch: (parts) =>
            Effect.tap(queue.fetch(parts), (found) =>
              Effect.sync(() => {
                asked.add(`${parts.length} lanes${parts[0]?.from === undefined ? "" : " with marks"}`)
                fetched.push(found.flatMap(({ events }) => events))
              })
            ),
          mark: (runs) =>
            Effect.andThen(
              queue.mark(runs),
              Effect.sync(() => void marked.push(runs))
            )
        })
      )
    ).pipe(Layer.provide(Queue.layer))
    yield* Layer.build(
      WarmUp.layer.pipe(
        Layer.provide(watched),
        Layer.provide(brokerWith((batch) => Effect.sync(() => void rehearsed.push(batch)), published)),
        Layer.provide(settings(60_000))
      )
    )
    assert.deepStrictEqual(yield* queued, before)
    assert.lengthOf(before, 6)
    assert.lengthOf(yield* sql`SELECT FROM event_log`, 0)
    assert.lengthOf(yield* sql`SELECT FROM broker_log`, 0)
    assert.lengthOf(published, 0)
    assert.isNotEmpty(rehearsed)
    assert.isTrue(rehearsed.every(({ topic }) => topic === Ledger.topic))
    // Each width, on each connection.
    const widths = [...new Set(marked.map((runs) => runs.length))].toSorted((one, other) => one - other)
    assert.deepStrictEqual(widths, [1, 2, 4, 8, 16, 32, 64])
    assert.isTrue(marked.flat().every(({ events, lane }) => lane >= 64 && events.every(({ seq }) => seq === 0n)))
    assert.isNotEmpty(fetched)
    // Each of these forms is a statement of its own.
    assert.sameMembers([...asked], ["1 lanes", "1 lanes with marks", "2 lanes with marks", "64 lanes with marks"])
    assert.isTrue(fetched.every((events) => events.length === 0))
  }).pipe(Effect.scoped, Effect.provide(world))
)

const dead = Layer.succeed(
  Queue,
  Queue.of({
    ready: () => Effect.die(new Error("no database")),
    fetch: () => Effect.die(new Error("no database")),
    mark: () => Effect.die(new Error("no database")),
    pending: () => Effect.die(new Error("no database"))
  })
)

const silent = Layer.succeed(
  Queue,
  Queue.of({
    ready: () => Effect.never,
    fetch: () => Effect.never,
    mark: () => Effect.never,
    pending: () => Effect.never
  })
)

for (const [what, queue, rehearse, limitMillis] of [
  [
    "a database and a broker that fail",
    dead,
    () => Effect.fail(new BrokerUnavailable({ operation: "x", cause: "x" })),
    60_000
  ],
  ["a database and a broker that never answer", silent, () => Effect.never, 50],
  ["a broker whose client throws", dead, () => Effect.die(new Error("a defect")), 60_000]
] as const) {
  it.live(`${what} neither fail nor hold a start`, () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(
        Layer.build(
          WarmUp.layer.pipe(
            Layer.provide(queue),
            Layer.provide(brokerWith(rehearse, [])),
            Layer.provide(settings(limitMillis))
          )
        )
      )
      assert.isTrue(Exit.isSuccess(exit))
    }).pipe(Effect.scoped, Effect.provide(world))
  )
}

it.live("the dispatcher warms up before it takes part in the lanes", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { name } = yield* TestDatabase
    /** How many sessions of this database hold lanes at the first rehearsal. */
    const held: Array<number> = []
    const rehearse = () =>
      sql`SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE locktype = 'advisory' AND datname = ${name}`.pipe(
        Effect.orDie,
        Effect.map((locks) => void held.push(locks.length))
      )
    yield* Layer.build(
      Layer.fresh(TestProcess.dispatcherOver(() => brokerWith(rehearse, [])).pipe(Layer.provide(settings(60_000))))
    )
    assert.isNotEmpty(held)
    assert.isTrue(held.every((locks) => locks === 0))
  }).pipe(Effect.scoped, Effect.provide(world))
)
