/** Version order within an aggregate, for events that come late, twice, too early or never. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { Cursors } from "../../src/inbox/Cursors.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { InboxReport } from "../../src/operations/reports/InboxReport.ts"
import { Holds } from "../../src/inbox/holds/Holds.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure } from "../../src/inbox/Subscriber.ts"
import * as Counters from "../support/Counters.ts"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, holdOn, idOf, makePartition, makeSubscriber, parkedOf, record } = Deliveries

const upTo = (version: number) => Array.from({ length: version }, (_, index) => index + 1)
const operator = { actor: "test", reason: "it is a test" }
const process = Layer.provideMerge(
  Deliveries.process,
  Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 3 })
)

/** One round over the holds that are due by the database's clock. */
const retryDue = (subscriber: ReturnType<typeof makeSubscriber>["subscriber"]) =>
  Effect.flatMap(HoldRetries, ({ retryHeld }) => retryHeld(subscriber))

it.live(
  "an event that comes before an earlier version waits for it, and all follow in version order once it comes",
  () =>
    Effect.gen(function* () {
      const { subscriber } = makeSubscriber("one")
      const report = yield* InboxReport
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice([record("a", 1), record("a", 4), record("a", 5), record("b", 1)]))
      yield* deliver(subscriber, partition.slice([record("a", 3), record("a", 6)]))
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
      assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
      assert.include(yield* holdOn("one", "a"), {
        status: "gap",
        attempts: 0,
        error: "version 2 of its aggregate has not come"
      })
      assert.deepStrictEqual(yield* report.counts("one"), { retrying: 0, parked: 3, dead: 0, gaps: 1 })
      // No hold is due: it waits for an event, and not for a time.
      assert.strictEqual(yield* retryDue(subscriber), 0)
      yield* deliver(subscriber, partition.slice([record("a", 2), record("a", 7)]))
      assert.strictEqual(yield* retryDue(subscriber), 1)
      assert.deepStrictEqual(yield* effectsOf("one", "a"), upTo(7))
      assert.isUndefined(yield* holdOn("one", "a"))
    }).pipe(Effect.provide(process))
)

it.live("a slice in reverse order is applied in version order", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    yield* deliver(
      subscriber,
      makePartition().slice(
        upTo(20)
          .toReversed()
          .map((version) => record("a", version))
      )
    )
    yield* retryDue(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), upTo(20))
  }).pipe(Effect.provide(process))
)

it.live("an operator skips a missing version, which is not applied when it comes later", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const letters = yield* InboxDeadLetters
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1), record("a", 4), record("a", 6)]))
    const head = idOf("a", 4)
    assert.include((yield* Effect.flip(letters.retry("one", head, operator))).message, "skip goes on without")
    assert.include((yield* Effect.flip(letters.discard("one", head, operator))).message, "skip goes on without")
    yield* letters.skip("one", head, operator)
    yield* retryDue(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 4])
    // The next gap needs another decision.
    assert.include(yield* holdOn("one", "a"), { status: "gap", eventId: idOf("a", 6) })
    yield* deliver(subscriber, partition.slice([record("a", 2), record("a", 3), record("a", 5)]))
    yield* retryDue(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 4, 5, 6])
    const sql = yield* SqlClient.SqlClient
    assert.deepStrictEqual(yield* sql`SELECT action, before, after FROM operator_audit`, [
      { action: "skip", before: { status: "gap", version: 1 }, after: { status: "retrying", version: 3 } }
    ])
  }).pipe(Effect.provide(process))
)

it.live("no consumer waits for an event that an operator gave up before it was ever sent", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const discard = (id: string, version: number) => Deliveries.buryInOutbox(id, version, "discarded")
    yield* Effect.forEach([2, 3], (version) => discard("a", version))
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1), record("a", 4), record("b", 1), record("b", 3)]))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 4])
    assert.include(yield* holdOn("one", "b"), { status: "gap" })
    // An operator gives the event up while the consumer already waits for it.
    yield* discard("b", 2)
    yield* Effect.flatMap(HoldRetries, ({ sweepGaps }) => sweepGaps("one"))
    yield* retryDue(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "b"), [1, 3])
  }).pipe(Effect.provide(process))
)

it.live("a consumer waits for an event that is dead in the outbox: redriven, it is applied in its turn", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const { sweepGaps } = yield* HoldRetries
    const partition = makePartition()
    // A dispatcher skipped dead version 2 and has sent version 3, and an operator may still redrive version 2.
    yield* Deliveries.buryInOutbox("a", 2, "dead")
    yield* deliver(subscriber, partition.slice([record("a", 1), record("a", 3)]))
    yield* sweepGaps("one")
    assert.strictEqual(yield* retryDue(subscriber), 0)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
    assert.include(yield* holdOn("one", "a"), { status: "gap", eventId: idOf("a", 3) })
    yield* deliver(subscriber, partition.slice([record("a", 2)]))
    yield* retryDue(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2, 3])
  }).pipe(Effect.provide(process))
)

it.live("a subscriber says whether a first sight above version 1 is a gap or where it starts", () =>
  Effect.gen(function* () {
    const strict = makeSubscriber("strict").subscriber
    const open = makeSubscriber("open", "any-version").subscriber
    for (const subscriber of [strict, open]) {
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice([record("a", 5), record("a", 6), record("a", 8)]))
    }
    assert.deepStrictEqual(yield* effectsOf("strict", "a"), [])
    assert.include(yield* holdOn("strict", "a"), { status: "gap", eventId: idOf("a", 5) })
    assert.deepStrictEqual(yield* effectsOf("open", "a"), [5, 6])
    // From version 5 on it applies no version before its predecessor.
    assert.include(yield* holdOn("open", "a"), { status: "gap", eventId: idOf("a", 8) })
  }).pipe(Effect.provide(process))
)

it.live("a topic that is read again from offset 0 changes nothing, parked events included", () =>
  Effect.gen(function* () {
    const { broken, subscriber } = makeSubscriber("one")
    broken.set("b/3", Effect.fail(new Error("out of paper")))
    const sent = [
      ...["a", "b", "c"].flatMap((id) => upTo(10).map((version) => record(id, version))),
      Deliveries.garbage("c"),
      record("d", 2),
      record("c", 11)
    ]
    yield* deliver(subscriber, makePartition().slice(sent))
    yield* Deliveries.retryAll(subscriber, 5)
    const before = yield* Deliveries.everything
    assert.lengthOf(before.effects, 22)
    assert.deepStrictEqual([before.holds.length, before.letters.length], [3, 2])
    for (const size of [1, 7, 100]) {
      const again = makePartition()
      for (let at = 0; at < sent.length; at += size) {
        yield* deliver(subscriber, again.slice(sent.slice(at, at + size)))
      }
      yield* retryDue(subscriber)
      assert.deepStrictEqual(yield* Deliveries.everything, before)
    }
  }).pipe(Effect.provide(process))
)

it.live("a duplicate that comes long after its mark was dropped changes nothing, and leaves no mark", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { handled, subscriber } = makeSubscriber("one")
    const sent = upTo(5).map((version) => record("a", version))
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice(sent))
    yield* sql`DELETE FROM processed_events`
    yield* deliver(subscriber, partition.slice(sent))
    yield* deliver(subscriber, partition.slice([record("a", 6)]))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), upTo(6))
    assert.strictEqual(handled.length, 6)
    assert.strictEqual((yield* Deliveries.markedOf("one")).size, 1)
  }).pipe(Effect.provide(process))
)

it.live("an event that is sent again under a new id has its effect once: its version was applied", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const twin = record("a", 1)
    const renamed = {
      ...twin,
      value: new TextEncoder().encode(new TextDecoder().decode(twin.value).replace(idOf("a", 1), idOf("another", 1)))
    }
    yield* deliver(subscriber, makePartition().slice([record("a", 1), renamed, record("a", 2)]))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    assert.deepStrictEqual(yield* parkedOf("one", "a"), [])
  }).pipe(Effect.provide(process))
)

it.live("many members at the same slices: each effect once and in order, without one deadlock", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = makeSubscriber("one")
    const ids = upTo(8).map((id) => `id-${id}`)
    const slices = Array.from({ length: 15 }, (_, slice) => {
      const partition = makePartition()
      return partition.slice(upTo(5).flatMap((step) => ids.map((id) => record(id, slice * 5 + step))))
    })
    // Each member is a zombie to the others: none of them knows that it has lost the partition.
    yield* Effect.forEach(
      upTo(4),
      () => Effect.forEach(slices, (slice) => deliver(subscriber, slice), { discard: true }),
      { concurrency: "unbounded", discard: true }
    )
    for (const id of ids) assert.deepStrictEqual(yield* effectsOf("one", id), upTo(75))
    const [row] = yield* sql<{ readonly deadlocks: number }>`
      SELECT deadlocks::int4 AS deadlocks FROM pg_stat_database WHERE datname = current_database()`
    assert.strictEqual(row?.deadlocks, 0)
  }).pipe(Effect.provide(process))
)

it.live("an event counts as applied also after its mark is gone, and a discarded event never does", () =>
  Effect.gen(function* () {
    const { applied } = yield* AppliedEvents
    const letters = yield* InboxDeadLetters
    const { broken, subscriber } = makeSubscriber("one")
    broken.set("a/2", Effect.fail(new PermanentFailure({ reason: "nobody reads this" })))
    yield* deliver(subscriber, makePartition().slice(upTo(4).map((version) => record("a", version))))
    const told = Effect.map(
      applied(
        ["one", "two"],
        "a",
        upTo(5).map((version) => ({ eventId: idOf("a", version), version }))
      ),
      (pairs) => upTo(5).filter((version) => pairs.has(`one ${idOf("a", version)}`))
    )
    assert.deepStrictEqual(yield* told, [1])
    yield* letters.discard("one", idOf("a", 2), operator)
    yield* retryDue(subscriber)
    assert.deepStrictEqual(yield* told, [1, 3, 4])
    yield* Deliveries.dropMarks
    assert.deepStrictEqual(yield* told, [1, 3, 4])
  }).pipe(Effect.provide(process))
)

it.live("two kinds of aggregate that share an id and a topic have a cursor each", () =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const other = { aggregateType: "Other" }
    const partition = makePartition()
    yield* deliver(
      subscriber,
      partition.slice([record("a", 1), record("a", 1, other), record("a", 2), record("a", 3, other), record("a", 3)])
    )
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 1, 2])
    yield* deliver(subscriber, partition.slice([record("a", 2, other), record("a", 4)]))
    yield* retryDue(subscriber)
    assert.deepStrictEqual(
      (yield* effectsOf("one", "a")).toSorted((x, y) => x - y),
      [1, 1, 2, 2, 3, 3, 4]
    )
  }).pipe(Effect.provide(process))
)

it.live("an event that arrives while its gap is recorded is not overlooked: the decision waits for it", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = makeSubscriber("one")
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1), record("a", 3)]))
    // The hold is made due …
    yield* sql`UPDATE inbox_holds SET status = 'retrying', next_attempt_at = clock_now()`
    const inHandler = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    const slow = {
      ...subscriber,
      handle: (event: Parameters<typeof subscriber.handle>[0]) =>
        subscriber
          .handle(event)
          .pipe(Effect.andThen(Deferred.succeed(inHandler, undefined)), Effect.andThen(Deferred.await(goOn)))
    }
    // … while a slice that has not committed yet parks the missing event.
    const arrival = yield* Effect.forkChild(deliver(slow, partition.slice([record("a", 2), record("b", 1)])))
    yield* Deferred.await(inHandler)
    const decision = yield* Effect.forkChild(retryDue(subscriber))
    yield* Counters.untilBlocked("the decision to wait for the arrival")
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(arrival)
    yield* Fiber.join(decision)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2, 3])
    assert.isUndefined(yield* holdOn("one", "a"))
  }).pipe(Effect.provide(process))
)

it.live(
  "a version that comes again under another id, to another member during the first one's slice, has no second effect",
  () =>
    Effect.gen(function* () {
      const { subscriber } = makeSubscriber("one")
      const partition = makePartition()
      yield* deliver(subscriber, partition.slice([record("a", 1)]))
      const inHandler = yield* Deferred.make<void>()
      const goOn = yield* Deferred.make<void>()
      const slow = {
        ...subscriber,
        handle: (event: Parameters<typeof subscriber.handle>[0]) =>
          subscriber
            .handle(event)
            .pipe(Effect.andThen(Deferred.succeed(inHandler, undefined)), Effect.andThen(Deferred.await(goOn)))
      }
      const first = yield* Effect.forkChild(deliver(slow, partition.slice([record("a", 2)])))
      yield* Deferred.await(inHandler)
      // No mark shows that the version was applied. Only the cursor shows it, which the first member has moved and not committed.
      const text = new TextDecoder().decode(record("a", 2).value).replace(idOf("a", 2), idOf("a again", 2))
      const again = {
        ...record("a", 2),
        headers: { "event-id": idOf("a again", 2) },
        value: new TextEncoder().encode(text)
      }
      const second = yield* Effect.forkChild(deliver(subscriber, makePartition().slice([again])))
      yield* Counters.untilBlocked("the second to wait for the first")
      yield* Deferred.succeed(goOn, undefined)
      yield* Fiber.join(first)
      yield* Fiber.join(second)
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    }).pipe(Effect.provide(process))
)

it.live(
  "without marks the cursors alone give each event its effect once, also with two members in the same slice",
  () =>
    Effect.gen(function* () {
      const { subscriber } = makeSubscriber("one")
      const { run } = yield* ApplySlice
      const partition = makePartition()
      yield* run(subscriber, partition.slice([record("a", 1)]))
      const both = yield* Deferred.make<void>()
      let entered = 0
      const meeting = {
        ...subscriber,
        handle: (event: Parameters<typeof subscriber.handle>[0]) =>
          Effect.andThen(
            Effect.suspend(() => (++entered === 2 ? Deferred.succeed(both, undefined) : Deferred.await(both))),
            subscriber.handle(event)
          )
      }
      const slice = partition.slice([record("a", 2)])
      yield* Effect.all([run(meeting, slice), run(meeting, slice)], { concurrency: "unbounded" })
      assert.strictEqual(entered, 2)
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    }).pipe(
      Effect.provide(
        Layer.fresh(ApplySlice.layerNoDeps).pipe(
          Layer.provide([Cursors.layer, Holds.layerBlocking]),
          Layer.provide(
            Layer.succeed(Inbox, {
              markFirst: (_, eventIds) => Effect.succeed(new Set(eventIds))
            })
          )
        )
      ),
      Effect.provide(process)
    )
)
