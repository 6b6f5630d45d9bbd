/** Several consumers hold the same event: a decision for one of them leaves the rows of the others unchanged. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure, type Subscriber } from "../../src/inbox/Subscriber.ts"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, garbage, holdOn, idOf, makePartition, makeSubscriber, parkedOf, record } = Deliveries

const operator = { actor: "test", reason: "it is a test" }
const process = Layer.provideMerge(
  Deliveries.process,
  Layer.succeed(HoldSettings, { retryBaseMillis: 3_600_000, maxAttempts: 3 })
)
const broken = Effect.fail(new Error("out of paper"))
const refused = Effect.fail(new PermanentFailure({ reason: "no reader here" }))

/** The consumer under test lies between two others, by name and by the order in which their rows are written. */
const makeThree = () => ({ before: makeSubscriber("alpha"), one: makeSubscriber("one"), after: makeSubscriber("two") })

/** All rows of a consumer. */
const rowsOf = (consumer: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return {
      cursors: yield* sql`SELECT * FROM consumer_cursors WHERE consumer_name = ${consumer} ORDER BY 1, 2, 3`,
      holds: yield* sql`SELECT * FROM inbox_holds WHERE consumer_name = ${consumer} ORDER BY 1, 2`,
      parked: yield* sql`SELECT * FROM inbox_parked WHERE consumer_name = ${consumer} ORDER BY 1, 4`,
      letters: yield* sql`SELECT * FROM inbox_dead_letters WHERE consumer_name = ${consumer} ORDER BY 1, 4`
    }
  })
const othersRows = Effect.all([rowsOf("alpha"), rowsOf("two")])

/** Runs `effect`, which must not change the rows of the other consumers. */
const alone = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = yield* othersRows
    const result = yield* effect
    assert.deepStrictEqual(yield* othersRows, before, `${what} changed another consumer's rows`)
    return result
  })

/** One round of this consumer, whose holds are all due. */
const round = (subscriber: Subscriber) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      UPDATE inbox_holds SET next_attempt_at = clock_now() WHERE consumer_name = ${subscriber.name} AND next_attempt_at IS NOT NULL`
    return yield* Effect.flatMap(HoldRetries, ({ retryHeld }) => retryHeld(subscriber))
  })

it.live("an event that all consumers hold: each attempt, dead letter, redrive and effect concerns one of them", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { after, before, one } = makeThree()
    before.broken.set("a/1", refused)
    one.broken.set("a/1", broken)
    after.broken.set("a/1", broken)
    const records = [record("a", 1), record("a", 2), record("a", 3)]
    yield* deliver(before.subscriber, makePartition().slice(records))
    yield* alone("a hold", deliver(one.subscriber, makePartition().slice(records.slice(0, 2))))
    yield* deliver(after.subscriber, makePartition().slice(records))
    assert.include(yield* holdOn("alpha", "a"), { status: "dead" })
    assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 1 })
    // It is dead for another consumer, and a redrive for this consumer keeps its own count.
    yield* alone("a retry that is due now", letters.retry("one", idOf("a", 1), operator))
    assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 1 })
    yield* alone("a second failure", round(one.subscriber))
    assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 2 })
    yield* alone("a death", round(one.subscriber))
    assert.include(yield* holdOn("one", "a"), { status: "dead", attempts: 3, history: 3 })
    yield* alone("a redrive", letters.retry("one", idOf("a", 1), operator))
    one.broken.clear()
    yield* alone("an effect", round(one.subscriber))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    assert.isUndefined(yield* holdOn("one", "a"))
    // The other consumers redrive it as well.
    yield* letters.retryAll({ consumer: "alpha" }, operator)
    for (const { broken, subscriber } of [before, after]) {
      broken.clear()
      yield* round(subscriber)
      assert.deepStrictEqual(yield* effectsOf(subscriber.name, "a"), [1, 2, 3])
    }
  }).pipe(Effect.provide(process))
)

for (const status of ["retrying", "dead"] as const) {
  it.live(`an event that all consumers hold and that is ${status} is discarded for one of them alone`, () =>
    Effect.gen(function* () {
      const letters = yield* InboxDeadLetters
      const { after, before, one } = makeThree()
      for (const { broken: failing, subscriber } of [before, one, after]) {
        failing.set("a/1", subscriber === one.subscriber ? (status === "dead" ? refused : broken) : refused)
        yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
      }
      // One of the other consumers has discarded it before.
      yield* letters.discard("two", idOf("a", 1), operator)
      yield* alone("a discard", letters.discard("one", idOf("a", 1), operator))
      assert.isUndefined(yield* holdOn("one", "a"))
      const [letter] = (yield* rowsOf("one")).letters
      assert.deepInclude(letter, { status: "discarded", attempts: 1 })
      yield* alone("what comes next", deliver(one.subscriber, makePartition().slice([record("a", 2)])))
      assert.deepStrictEqual(yield* effectsOf("one", "a"), [2])
    }).pipe(Effect.provide(process))
  )
}

it.live("dead letters are redriven for the consumer that was named alone", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { after, before, one } = makeThree()
    for (const { broken, subscriber } of [before, one, after]) {
      broken.set("a/1", refused)
      yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    }
    const { refusedCount, retried } = yield* alone("a batch", letters.retryAll({ consumer: "one" }, operator))
    assert.deepStrictEqual([retried, refusedCount], [1, 0])
  }).pipe(Effect.provide(process))
)

it.live("an operator who names a consumer gets that consumer's events alone", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { after, one } = makeThree()
    one.broken.set("a/1", broken)
    yield* deliver(after.subscriber, makePartition().slice([record("a", 1), record("a", 2), record("b", 1)]))
    yield* deliver(one.subscriber, makePartition().slice([record("a", 1), record("a", 2)]))
    // The other consumer has applied it, and this one has no row about it.
    assert.include((yield* Effect.flip(letters.retry("one", idOf("b", 1), operator))).message, "has nothing called")
    assert.include(yield* letters.retry("two", idOf("a", 1), operator), { status: "applied", changed: false })
    // It can be discarded although the other consumer has passed it.
    yield* alone("a discard", letters.discard("one", idOf("a", 1), operator))
    yield* alone("a round", round(one.subscriber))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [2])
  }).pipe(Effect.provide(process))
)

it.live("a gap belongs to one consumer: filling, skipping or checking it leaves the others' gaps unchanged", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const letters = yield* InboxDeadLetters
    const { nextDueMillis, retryHeld, sweepGaps } = yield* HoldRetries
    const { after, before, one } = makeThree()
    const partition = makePartition()
    for (const id of ["a", "b"]) {
      // Of the other consumers one is ahead, with a failure, and one has the same gap.
      before.broken.set(`${id}/2`, broken)
      yield* deliver(before.subscriber, makePartition().slice([record(id, 1), record(id, 2), record(id, 3)]))
      yield* deliver(one.subscriber, partition.slice([record(id, 1), record(id, 4)]))
      yield* deliver(after.subscriber, makePartition().slice([record(id, 1), record(id, 4)]))
    }
    yield* sql`UPDATE consumer_cursors SET version = 2 WHERE consumer_name <> 'one'`
    yield* sweepGaps("one")
    assert.include(yield* holdOn("one", "a"), { status: "gap" })
    // A hold that is due for another consumer is not due for this one.
    yield* sql`UPDATE inbox_holds SET next_attempt_at = clock_now() WHERE consumer_name = 'alpha'`
    assert.isUndefined(yield* nextDueMillis("one"))
    assert.strictEqual(yield* retryHeld(one.subscriber), 0)
    yield* alone("a skip", letters.skip("one", idOf("a", 4), operator))
    assert.deepStrictEqual(yield* sql`SELECT before, after FROM operator_audit`, [
      { before: { status: "gap", version: 1 }, after: { status: "retrying", version: 3 } }
    ])
    yield* alone("a gap that is filled", deliver(one.subscriber, partition.slice([record("b", 2), record("b", 3)])))
    yield* alone("a round", round(one.subscriber))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 4])
    assert.deepStrictEqual(yield* effectsOf("one", "b"), [1, 2, 3, 4])
    // The others' gap is filled now, and only they check it.
    yield* Deliveries.buryInOutbox("a", 3, "discarded")
    yield* alone("a sweep", sweepGaps("one"))
    yield* sweepGaps("two")
    assert.include(yield* holdOn("two", "a"), { status: "retrying" })
  }).pipe(Effect.provide(process))
)

it.live("an unreadable record keeps its order and its hold, whatever other consumers did with it", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { after, before, one } = makeThree()
    const much = [1, 2, 3, 4, 5, 6].map((version) => record("a", version))
    for (const { broken: failing } of [before, one, after]) failing.set("a/1", broken)
    yield* deliver(before.subscriber, makePartition(1).slice([...much, garbage("b")]))
    yield* letters.discard("alpha", `${Deliveries.topic}:1:6`, operator)
    const partition = makePartition(1)
    yield* deliver(one.subscriber, partition.slice([record("a", 1)]))
    yield* deliver(after.subscriber, makePartition(1).slice(much))
    yield* deliver(one.subscriber, partition.slice([garbage("a")]))
    yield* deliver(one.subscriber, partition.slice([record("a", 2)]))
    assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 1), `${Deliveries.topic}:1:1`, idOf("a", 2)])
    // Another consumer has discarded the record at this offset.
    const again = makePartition(1)
    const slice = again.slice([...much, garbage("b")])
    yield* deliver(one.subscriber, slice)
    assert.include(yield* holdOn("one", "b"), { status: "dead" })
  }).pipe(Effect.provide(process))
)

it.live("an id that another consumer has for another aggregate does not count as a duplicate id here", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { after, before, one } = makeThree()
    for (const { broken: failing } of [before, one, after]) failing.set("a/1", broken).set("b/1", broken)
    before.broken.set("b/1", refused)
    const text = new TextDecoder().decode(record("b", 1).value).replace(idOf("b", 1), idOf("a", 1))
    const twin = { ...record("b", 1), value: new TextEncoder().encode(text) }
    yield* deliver(before.subscriber, makePartition().slice([twin]))
    yield* deliver(after.subscriber, makePartition().slice([twin]))
    yield* deliver(one.subscriber, makePartition().slice([record("a", 1)]))
    yield* alone("a second delivery", deliver(one.subscriber, makePartition(1).slice([record("a", 1)])))
    assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 1)])
    yield* alone("a retry", letters.retry("one", idOf("a", 1), operator))
    one.broken.clear()
    yield* alone("a round", round(one.subscriber))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
  }).pipe(Effect.provide(process))
)

it.live("an event that one consumer discarded is still reported as applied by the other later", () =>
  Effect.gen(function* () {
    const { applied } = yield* AppliedEvents
    const letters = yield* InboxDeadLetters
    const { after, one } = makeThree()
    one.broken.set("a/1", refused)
    for (const { subscriber } of [one, after]) yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    yield* letters.discard("one", idOf("a", 1), operator)
    yield* Deliveries.dropMarks
    const told = yield* applied(["one", "two"], "a", [{ eventId: idOf("a", 1), version: 1 }])
    assert.deepStrictEqual([...told], [`two ${idOf("a", 1)}`])
  }).pipe(Effect.provide(process))
)
