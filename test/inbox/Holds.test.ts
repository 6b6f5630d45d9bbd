/** An event that a consumer can't apply: its own aggregate waits for that consumer, in order, and no other aggregate does. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Handle from "../../src/inbox/Handle.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { DependencyDown, PermanentFailure } from "../../src/inbox/Subscriber.ts"
import * as Tracing from "../../src/platform/Tracing.ts"
import * as Deliveries from "../support/Deliveries.ts"

const {
  deliver,
  effectsOf,
  garbage,
  holdOn,
  idOf,
  makePartition,
  makeSubscriber,
  markedOf,
  parkedOf,
  record,
  retryAll
} = Deliveries

const upTo = (version: number) => Array.from({ length: version }, (_, index) => index + 1)
const operator = { actor: "test", reason: "it is a test" }
const broken = Effect.fail(new Error("out of paper"))

/** Three attempts. Due times are far ahead: a test brings them forward, and never waits for one. */
const soon = Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 3 })

it.live(
  "one event that fails among 10,000 delays no other aggregate; its own waits, and ends complete and in order",
  () =>
    Effect.gen(function* () {
      const { broken: failing, subscriber } = makeSubscriber("one")
      failing.set("id-7/40", broken)
      const partition = makePartition()
      for (let version = 1; version <= 100; version++) {
        yield* deliver(subscriber, partition.slice(upTo(100).map((id) => record(`id-${id}`, version))))
      }
      assert.strictEqual(partition.state.committed, 10_000n)
      for (const id of upTo(100)) {
        assert.deepStrictEqual(yield* effectsOf("one", `id-${id}`), upTo(id === 7 ? 39 : 100))
      }
      // No parked event is marked as applied.
      const marked = yield* markedOf("one")
      const parked = yield* parkedOf("one", "id-7")
      assert.deepStrictEqual(
        parked,
        upTo(61).map((index) => idOf("id-7", 39 + index))
      )
      assert.isFalse(parked.some((id) => marked.has(id)))
      assert.strictEqual(marked.size, 9_939)
      assert.include(yield* holdOn("one", "id-7"), { status: "retrying", attempts: 1, error: "out of paper" })

      failing.clear()
      yield* retryAll(subscriber)
      assert.deepStrictEqual(yield* effectsOf("one", "id-7"), upTo(100))
      assert.isUndefined(yield* holdOn("one", "id-7"))
      // After the parked events the next one comes from the topic.
      yield* deliver(subscriber, partition.slice([record("id-7", 101)]))
      assert.deepStrictEqual(yield* effectsOf("one", "id-7"), upTo(101))
    }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live(
  "a handler's failures are counted to the limit, by its defects too, across restarts; then an operator decides",
  () =>
    Effect.gen(function* () {
      const letters = yield* InboxDeadLetters
      const { broken: failing, handled, subscriber } = makeSubscriber("one")
      failing.set("a/2", Effect.die(new TypeError("undefined is not a function")))
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice([record("a", 1), record("a", 2), record("a", 3), record("b", 1)]))
      const first = yield* holdOn("one", "a")
      assert.include(first, { status: "retrying", attempts: 1, error: "undefined is not a function" })
      // Full jitter: between now and base · 2¹.
      assert.isBelow(first?.waitMillis ?? 0, 2 * 60_000)
      // New steps read the number of attempts from the database.
      yield* Effect.provide(retryAll(subscriber), Deliveries.again)
      assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 2 })
      yield* retryAll(subscriber)
      assert.include(yield* holdOn("one", "a"), { status: "dead", attempts: 3, history: 3 })
      yield* retryAll(subscriber, 3)
      // Once in the slice, once alone, and twice from the hold.
      assert.strictEqual(handled.filter((name) => name === "a/2").length, 4)
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
      assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])

      failing.clear()
      assert.deepStrictEqual(yield* letters.retry("one", idOf("a", 2), operator), {
        consumer: "one",
        eventId: idOf("a", 2),
        status: "retrying",
        changed: true
      })
      yield* retryAll(subscriber)
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2, 3])
      assert.isTrue((yield* markedOf("one")).has(idOf("a", 2)))
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`SELECT actor, action, reason, subject, subject_id AS id FROM operator_audit`, [
        { actor: "test", action: "retry", reason: "it is a test", subject: "inbox event", id: `one ${idOf("a", 2)}` }
      ])
      assert.isFalse((yield* letters.retry("one", idOf("a", 2), operator)).changed)
    }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live("an event that fails for one consumer is applied by the others", () =>
  Effect.gen(function* () {
    const one = makeSubscriber("one")
    const two = makeSubscriber("two")
    one.broken.set("a/1", broken)
    const records = [record("a", 1), record("a", 2)]
    yield* deliver(one.subscriber, makePartition().slice(records))
    yield* deliver(two.subscriber, makePartition().slice(records))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [])
    assert.deepStrictEqual(yield* effectsOf("two", "a"), [1, 2])
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live("an event that fails permanently is a dead letter at once, and its aggregate waits for an operator", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set("a/1", Effect.fail(new PermanentFailure({ reason: "no reader here for Counted version 9" })))
    yield* deliver(subscriber, makePartition().slice([record("a", 1), record("a", 2)]))
    assert.include(yield* holdOn("one", "a"), { status: "dead", attempts: 1 })
    assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 2)])
    const behind = yield* Effect.flip(letters.retry("one", idOf("a", 2), operator))
    assert.include(behind.message, `waits behind event ${idOf("a", 1)}`)
    assert.strictEqual((yield* letters.discard("one", idOf("a", 1), operator)).changed, true)
    assert.strictEqual((yield* letters.discard("one", idOf("a", 1), operator)).changed, false)
    yield* retryAll(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [2])
    const final = yield* Effect.flip(letters.retry("one", idOf("a", 1), operator))
    assert.include(final.message, "discarded, which is final")
    // It may come again from the topic, and stays discarded.
    yield* deliver(subscriber, makePartition().slice([record("a", 1), record("a", 2), record("a", 3)]))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [2, 3])
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live("an event that was parked, dead and redriven is applied in the trace of the request that wrote it", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { broken: failing, subscriber } = makeSubscriber("one")
    const parents: Array<string | undefined> = []
    const traced = {
      ...subscriber,
      handle: (one: Parameters<typeof subscriber.handle>[0]) =>
        Effect.andThen(
          Effect.map(Tracing.current, (span) => parents.push(span && Tracing.toTraceparent(span))),
          subscriber.handle(one)
        )
    }
    const traceparentOf = (version: number) => `00-${String(version).repeat(32)}-${String(version).repeat(16)}-01`
    const withTrace = (version: number) => {
      const { headers, ...rest } = record("a", version)
      return { ...rest, headers: { ...headers, traceparent: traceparentOf(version) } }
    }
    failing.set("a/1", Effect.fail(new PermanentFailure({ reason: "no reader here yet" })))
    yield* deliver(traced, makePartition().slice([withTrace(1), withTrace(2)]))
    assert.include(yield* holdOn("one", "a"), { status: "dead" })
    failing.clear()
    parents.length = 0
    yield* letters.retry("one", idOf("a", 1), operator)
    yield* retryAll(traced)
    assert.deepStrictEqual(parents, [traceparentOf(1), traceparentOf(2)])
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

const event = (change: Record<string, unknown>) =>
  JSON.stringify({
    ...(JSON.parse(new TextDecoder().decode(record("a", 2).value)) as Record<string, unknown>),
    ...change
  })

for (const [what, text] of [
  ["broken JSON", "{broken"],
  ["no object", "null"],
  ["no id", event({ eventId: undefined })],
  ["an id that is none", event({ eventId: "7" })],
  ["a version that no integer holds", event({ aggregateVersion: 2 ** 40 })],
  ["a type with a NUL in it", event({ eventType: "Coun\0ted" })],
  ["a name that no index takes", event({ aggregateId: "x".repeat(10_000) })],
  ["a field that is missing", event({ data: undefined })]
] as const) {
  it.live(
    `a record with ${what} is dead at once under its place in the topic, and holds the aggregate of its key`,
    () =>
      Effect.gen(function* () {
        const letters = yield* InboxDeadLetters
        const { subscriber } = makeSubscriber("one")
        const partition = makePartition(3)
        yield* deliver(
          subscriber,
          partition.slice([record("a", 1), garbage("a", text), record("a", 2), record("b", 1), garbage(null, text)])
        )
        assert.include(yield* holdOn("one", "a"), { status: "dead", eventId: "counters:3:1" })
        // A record without a key stands alone.
        assert.include(yield* holdOn("one", "counters:3:4"), { status: "dead", eventId: "counters:3:4" })
        assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 2)])
        assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
        assert.strictEqual(partition.state.committed, 5n)
        // It still can't be read: it is a dead letter again, and nothing is lost.
        yield* letters.retry("one", "counters:3:1", operator)
        yield* retryAll(subscriber)
        assert.include(yield* holdOn("one", "a"), { status: "dead", eventId: "counters:3:1" })
        yield* letters.discard("one", "counters:3:1", operator)
        yield* letters.discard("one", "counters:3:4", operator)
        yield* retryAll(subscriber)
        assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
        assert.isUndefined(yield* holdOn("one", "a"))
        assert.isUndefined(yield* holdOn("one", "counters:3:4"))
        // Read again from offset 0, it stays discarded.
        const before = yield* Deliveries.everything
        yield* deliver(subscriber, {
          ...makePartition(3).slice([
            record("a", 1),
            garbage("a", text),
            record("a", 2),
            record("b", 1),
            garbage(null, text)
          ])
        })
        assert.deepStrictEqual(yield* Deliveries.everything, before)
      }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
  )
}

it.live("while a dependency is down no attempt is counted and no event parked: the slice comes again", () =>
  Effect.gen(function* () {
    const { broken: failing, handled, subscriber } = makeSubscriber("one")
    failing.set("a/2", Effect.fail(new DependencyDown({ reason: "the stock server" })))
    const partition = makePartition()
    const slice = partition.slice([record("a", 1), record("a", 2), record("b", 1)])
    for (let time = 0; time < 20; time++) {
      assert.isTrue((yield* Effect.exit(deliver(subscriber, slice)))._tag === "Failure")
    }
    assert.strictEqual(partition.state.committed, 0n)
    assert.isUndefined(yield* holdOn("one", "a"))
    // The whole slice was tried each time, and never event by event, since no event is to blame.
    assert.strictEqual(handled.length, 40)
    failing.clear()
    yield* deliver(subscriber, slice)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    assert.strictEqual(partition.state.committed, 3n)
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

it.live("a parked event whose dependency is down is tried later, without limit, and not counted", () =>
  Effect.gen(function* () {
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set("a/1", broken)
    yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    failing.set("a/1", Effect.fail(new DependencyDown({ reason: "the stock server" })))
    yield* retryAll(subscriber, 10)
    assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 1 })
    failing.clear()
    yield* retryAll(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)

// The time limit is that of a whole transaction, so the other events of the slice must fit into it.
it.live("a handler that never ends fails at its time limit, and its slice goes on", () =>
  Effect.gen(function* () {
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set("a/1", Effect.never)
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1), record("b", 1)]))
    assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 1 })
    assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
    assert.strictEqual(partition.state.committed, 2n)
  }).pipe(
    Effect.provide(Deliveries.process),
    Effect.provide(Layer.mergeAll(soon, Layer.succeed(Handle.HandleSettings, { timeoutMillis: 2_500 })))
  )
)

it.live(
  "a handler that swallows its own failed statement fails alone: the others of its slice keep their effects",
  () =>
    Effect.gen(function* () {
      const { broken: failing, subscriber } = makeSubscriber("one")
      const swallow = {
        ...subscriber,
        handle: (event: Parameters<typeof subscriber.handle>[0]) =>
          Effect.catchCause(subscriber.handle(event), () => Effect.void)
      }
      const sql = yield* SqlClient.SqlClient
      yield* sql`ALTER TABLE effects ADD CHECK (id <> 'bad')`
      yield* deliver(swallow, makePartition().slice([record("a", 1), record("bad", 1), record("b", 1)]))
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
      assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
      assert.include(yield* holdOn("one", "bad"), { status: "retrying", attempts: 1 })
      assert.strictEqual(failing.size, 0)
    }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)
