/** Finding the event that is to blame for a failed slice: the right event, the number of transactions, and the error that an operator reads. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Latch, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure, type Subscriber } from "../../src/inbox/Subscriber.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, holdOn, idOf, makePartition, makeSubscriber, parkedOf, record, retryAll } = Deliveries

/** Due times are far ahead: a test brings them forward, and never waits for one. */
const soon = Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 3 })
const refused = Effect.fail(new PermanentFailure({ reason: "nobody here knows it" }))
const broken = Effect.fail(new Error("out of paper"))

/** As a sort that is larger than `temp_file_limit`. */
const exceeding = Effect.flatMap(Transaction, ({ sql }) =>
  Effect.andThen(
    sql`DO $$ BEGIN RAISE EXCEPTION 'temporary file size exceeds temp_file_limit' USING ERRCODE = '53400'; END $$`,
    broken
  )
)

/** The transactions that left an effect. */
const transactions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly count: number }>`SELECT count(DISTINCT xmin::text)::int4 AS count FROM effects`
  return row?.count ?? 0
})

/** Events of 100 aggregates, two of each. */
const ids = Array.from({ length: 100 }, (_, index) => `id-${index}`)
const two = [...ids.map((id) => record(id, 1)), ...ids.map((id) => record(id, 2))]

const together = (one: ReturnType<typeof makeSubscriber>): Subscriber => ({
  ...one.subscriber,
  handleMany: (events) => Effect.forEach(events, one.subscriber.handle, { discard: true })
})

for (const [what, failure, many] of [
  ["is refused for good", refused, false],
  ["fails", broken, false],
  ["exceeds a limit of its session", exceeding, false],
  ["breaks its transaction", Effect.flatMap(Transaction, ({ sql }) => Effect.andThen(sql`SELECT 1/0`, broken)), false],
  ["is refused among many that are handled at once", refused, true]
] as const) {
  it.live(`one event of 200 that ${what} costs a few transactions, and only its aggregate waits, in order`, () =>
    Effect.gen(function* () {
      const one = makeSubscriber("one")
      one.broken.set("id-57/1", failure)
      const partition = makePartition()
      yield* deliver(many ? together(one) : one.subscriber, partition.slice(two))
      // A binary search: 2 · log2(200).
      assert.isAtMost(yield* transactions, 15)
      assert.isAtMost(one.handled.length, 4 * 200)
      assert.strictEqual(partition.state.committed, 200n)
      for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), id === "id-57" ? [] : [1, 2])
      assert.include(yield* holdOn("one", "id-57"), { status: failure === refused ? "dead" : "retrying", attempts: 1 })
      assert.include(yield* parkedOf("one", "id-57"), idOf("id-57", 2))
    }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
  )
}

for (const [what, failure, times] of [
  ["refused for good", refused, 1],
  ["failing", broken, 2]
] as const) {
  it.live(`if every event is ${what}, each is called no more than ${times === 1 ? "once" : "twice"}`, () =>
    Effect.gen(function* () {
      const { broken: failing, handled, subscriber } = makeSubscriber("one")
      for (const id of ids) failing.set(`${id}/1`, failure)
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice(two))
      assert.isAtMost(handled.length, times * ids.length)
      assert.strictEqual(partition.state.committed, 200n)
      for (const id of ids) assert.include(yield* parkedOf("one", id), idOf(id, 2))
    }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
  )
}

it.live("an operator reads the database's own error", () =>
  Effect.gen(function* () {
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set(
      "a/1",
      Effect.flatMap(Transaction, ({ sql }) => Effect.andThen(sql`SELECT 1/0`, Effect.never))
    )
    yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    assert.include(yield* holdOn("one", "a"), { status: "retrying", error: "division by zero" })
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

for (const [what, failure, error] of [
  [
    "a statement that Postgres cancelled",
    Effect.flatMap(Transaction, ({ sql }) =>
      Effect.andThen(sql`SET LOCAL statement_timeout = 1`, Effect.andThen(sql`SELECT pg_sleep(60)`, Effect.never))
    ),
    "canceling statement due to statement timeout"
  ],
  ["a handler that interrupts itself", Effect.interrupt, "the handler interrupted itself"],
  [
    "a handler whose fiber was interrupted",
    Effect.flatMap(Effect.forkChild(Effect.interrupt), Fiber.join),
    "the handler interrupted itself"
  ]
] as const) {
  it.live(`${what} is a failure of the event, in its slice and behind its hold, to the limit`, () =>
    Effect.gen(function* () {
      const { broken: failing, subscriber } = makeSubscriber("one")
      failing.set("a/1", failure)
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice([record("b", 1), record("a", 1), record("c", 1)]))
      assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 1, error })
      assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
      assert.deepStrictEqual(yield* effectsOf("one", "c"), [1])
      assert.strictEqual(partition.state.committed, 3n)
      yield* retryAll(subscriber, 2)
      assert.include(yield* holdOn("one", "a"), { status: "dead", attempts: 3, error })
    }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
  )
}

it.live("a session that an operator ended is no failure of the event", () =>
  Effect.gen(function* () {
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set(
      "a/1",
      Effect.flatMap(Transaction, ({ sql }) =>
        Effect.andThen(sql`SELECT pg_terminate_backend(pg_backend_pid())`, Effect.never)
      )
    )
    const slice = makePartition().slice([record("a", 1)])
    assert.isTrue(Exit.isFailure(yield* Effect.exit(deliver(subscriber, slice))))
    assert.isUndefined(yield* holdOn("one", "a"))
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live("a consumer that is stopped while a handler runs blames nobody", () =>
  Effect.gen(function* () {
    const { broken: failing, subscriber } = makeSubscriber("one")
    const started = yield* Deferred.make<void>()
    failing.set("a/1", Effect.andThen(Deferred.succeed(started, undefined), Effect.never))
    const fiber = yield* Effect.forkChild(deliver(subscriber, makePartition().slice([record("a", 1)])))
    yield* Deferred.await(started)
    yield* Fiber.interrupt(fiber)
    assert.isUndefined(yield* holdOn("one", "a"))
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live("events that hang delay no other aggregate: holds that become due meanwhile are tried", () =>
  Effect.gen(function* () {
    const { retryHeld } = yield* HoldRetries
    const { broken: failing, subscriber } = makeSubscriber("one")
    const sql = yield* SqlClient.SqlClient
    const partition = makePartition()
    const end = yield* Deferred.make<void>()
    const hang = Effect.andThen(Deferred.await(end), broken)
    const hanging = ["h-0", "h-1", "h-2", "h-3", "h-4"]
    for (const id of [...hanging, "failed"]) failing.set(`${id}/1`, broken)
    yield* deliver(subscriber, partition.slice([...hanging, "failed"].map((id) => record(id, 1))))
    // One event hangs. The other one is healthy again, and due after it.
    failing.clear()
    failing.set("h-0/1", hang)
    const due = (id: string) =>
      sql`UPDATE inbox_holds SET next_attempt_at = clock_now() WHERE aggregate_id = ${id} AND next_attempt_at IS NOT NULL`
    yield* due("h-0")
    const first = yield* Effect.forkChild(retryHeld(subscriber))
    yield* due("failed")
    yield* Counters.eventually(
      "the other due events to be applied",
      Effect.map(effectsOf("one", "failed"), (effects) => effects.length === 1)
    )
    yield* Deferred.succeed(end, undefined)
    yield* Fiber.join(first)

    // More events hang than attempts run concurrently, and one event has never failed.
    const last = yield* Deferred.make<void>()
    for (const id of hanging) failing.set(`${id}/1`, Effect.andThen(Deferred.await(last), broken))
    for (const id of hanging) yield* due(id)
    yield* deliver(subscriber, partition.slice([record("gap", 2)]))
    const second = yield* Effect.forkChild(retryHeld(subscriber))
    yield* deliver(subscriber, partition.slice([record("gap", 1)]))
    yield* Counters.eventually(
      "the filled gap to be applied",
      Effect.map(effectsOf("one", "gap"), (effects) => effects.length === 2)
    )
    yield* Deferred.succeed(last, undefined)
    yield* Fiber.join(second)
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

for (const [what, wrap] of [
  ["", (error: unknown) => error],
  [", also where their handlers wrap what failed", (cause: unknown) => new Error("no sum", { cause })]
] as const) {
  it.live(`slices that deadlock on each other's rows are applied event by event, and no event is to blame${what}`, () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE totals (name text PRIMARY KEY, count int NOT NULL)`
      const one = makeSubscriber("one")
      const isFirstTaken = { x: yield* Latch.make(), y: yield* Latch.make() }
      /** Events of different aggregates write the same two rows, in a different order in each partition. */
      const summing: Subscriber = {
        ...one.subscriber,
        handle: Effect.fnUntraced(function* (event) {
          const transaction = yield* Transaction
          const [row, other] = event.aggregateId.startsWith("x") ? (["x", "y"] as const) : (["y", "x"] as const)
          yield* transaction.sql`
          INSERT INTO totals VALUES (${row}, 1) ON CONFLICT (name) DO UPDATE SET count = totals.count + 1`
          yield* one.subscriber.handle(event)
          yield* isFirstTaken[row].open
          yield* isFirstTaken[other].await
        }, Effect.mapError(wrap))
      }
      const partitions = [makePartition(0), makePartition(1)] as const
      yield* Effect.all(
        [
          deliver(summing, partitions[0].slice([record("x-0", 1), record("y-0", 1)])),
          deliver(summing, partitions[1].slice([record("y-1", 1), record("x-1", 1)]))
        ],
        { concurrency: "unbounded" }
      )
      // One slice was applied whole, and the other one in two transactions.
      assert.strictEqual(yield* transactions, 3)
      // The next slices are applied one by one at once.
      yield* deliver(summing, partitions[0].slice([record("x-2", 1), record("y-2", 1)]))
      assert.strictEqual(yield* transactions, 5)
      // They do not share a transaction either.
      const { runTogether } = yield* ApplySlice
      const shared = [partitions[0].slice([record("x-3", 1)]), partitions[1].slice([record("y-3", 1)])] as const
      assert.isTrue(Exit.isFailure(yield* Effect.exit(runTogether(summing, shared))))
      assert.strictEqual(yield* transactions, 5)
      assert.deepStrictEqual(yield* sql`SELECT name, count FROM totals ORDER BY name`, [
        { name: "x", count: 3 },
        { name: "y", count: 3 }
      ])
      assert.deepStrictEqual(
        partitions.map(({ state }) => state.committed),
        [4n, 2n]
      )
    }).pipe(Effect.provide(Deliveries.process))
  )
}
