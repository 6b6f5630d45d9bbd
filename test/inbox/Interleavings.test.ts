/** Two-step protocols of the inbox, and what another member or an operator does between the steps. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import * as HeldRows from "../../src/inbox/holds/HeldRows.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure, type Subscriber } from "../../src/inbox/Subscriber.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { FaultInjected } from "../../src/platform/FaultInjection.ts"
import { Faults } from "../../src/platform/Faults.ts"
import * as Counters from "../support/Counters.ts"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, holdOn, idOf, makePartition, makeSubscriber, parkedOf, record } = Deliveries

const operator = { actor: "test", reason: "a race" }
const process = Layer.provideMerge(
  Deliveries.process,
  Layer.succeed(HoldSettings, { retryBaseMillis: 3_600_000, maxAttempts: 3 })
)
const broken = Effect.fail(new Error("out of paper"))

/** A subscriber whose handler signals when it has written its effect, and then waits. */
const slowly = (subscriber: Subscriber) =>
  Effect.map(Effect.all([Deferred.make<void>(), Deferred.make<void>()]), ([isInside, goOn]) => ({
    isInside: Deferred.await(isInside),
    goOn: Deferred.succeed(goOn, undefined),
    slow: {
      ...subscriber,
      handle: (event: Parameters<typeof subscriber.handle>[0]) =>
        subscriber
          .handle(event)
          .pipe(Effect.andThen(Deferred.succeed(isInside, undefined)), Effect.andThen(Deferred.await(goOn)))
    } satisfies Subscriber
  }))

/**
 * Runs `start` until it waits for `lock`. Then runs `change` in the transaction that has the lock, and `beside` outside of it, and ends the
 * transaction.
 */
const whileLocked = <A, E, R, E1, R1 = never>(
  lock: Effect.Effect<unknown, E1>,
  start: Effect.Effect<A, E, R>,
  change: Effect.Effect<unknown, E1>,
  beside: Effect.Effect<unknown, E1, R1> = Effect.void
) =>
  Effect.gen(function* () {
    const isLocked = yield* Deferred.make<void>()
    const mayEnd = yield* Deferred.make<void>()
    const locking = yield* Effect.forkChild(
      Transaction.run(
        lock.pipe(
          Effect.andThen(Deferred.succeed(isLocked, undefined)),
          Effect.andThen(Deferred.await(mayEnd)),
          Effect.andThen(change)
        )
      )
    )
    yield* Deferred.await(isLocked)
    const started = yield* start
    yield* Counters.untilBlocked("what was started to wait for the lock")
    yield* beside
    yield* Deferred.succeed(mayEnd, undefined)
    yield* Fiber.join(locking)
    return started
  })

it.live("a skip that waits for a member which applies the missing version skips nothing", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { applied } = yield* AppliedEvents
    const letters = yield* InboxDeadLetters
    const { subscriber } = makeSubscriber("one")
    const { retryHeld } = yield* HoldRetries
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1)]))
    const { goOn, isInside, slow } = yield* slowly(subscriber)
    const first = yield* Effect.forkChild(deliver(slow, partition.slice([record("a", 2)])))
    yield* isInside
    // Another member has the next record, and does not see the first one's open transaction.
    yield* deliver(subscriber, partition.slice([record("a", 3)]))
    assert.include(yield* holdOn("one", "a"), { status: "gap", eventId: idOf("a", 3) })
    const skip = yield* Effect.forkChild(letters.skip("one", idOf("a", 3), operator))
    yield* Counters.untilBlocked("the skip to wait for the cursor")
    yield* goOn
    yield* Fiber.join(first)
    yield* Fiber.join(skip)
    yield* retryHeld(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2, 3])
    assert.deepStrictEqual(yield* sql`SELECT before, after FROM operator_audit`, [
      { before: { status: "gap", version: 2 }, after: { status: "retrying", version: 2 } }
    ])
    yield* Deliveries.dropMarks
    const events = [1, 2, 3].map((version) => ({ eventId: idOf("a", version), version }))
    assert.strictEqual((yield* applied(["one"], "a", events)).size, 3)
  }).pipe(Effect.provide(process))
)

it.live("an arrival that waited for a hold's end reads the cursor again", () =>
  Effect.gen(function* () {
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set("a/1", broken)
    const partition = makePartition()
    yield* deliver(subscriber, partition.slice([record("a", 1)]))
    const held = { consumer: "one", aggregateId: "a" }
    const isDone = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    const other = yield* Effect.forkChild(
      Transaction.run(
        Effect.gen(function* () {
          const { sql } = yield* Transaction
          yield* HeldRows.lockHold(held, "exclusive")
          yield* HeldRows.remove("one", idOf("a", 1), idOf("a", 1))
          yield* sql`INSERT INTO consumer_cursors VALUES ('one', 'a', 'Counter', 1)`
          yield* HeldRows.release(held)
          yield* Deferred.succeed(isDone, undefined)
          yield* Deferred.await(goOn)
        })
      )
    )
    yield* Deferred.await(isDone)
    const arrival = yield* Effect.forkChild(deliver(subscriber, partition.slice([record("a", 2)])))
    yield* Counters.untilBlocked("the arrival to wait for the hold's end")
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(other)
    yield* Fiber.join(arrival)
    assert.isUndefined(yield* holdOn("one", "a"))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [2])
  }).pipe(Effect.provide(process))
)

it.live(
  "an attempt that fails transiently revives no event that became a dead letter between its two transactions",
  () =>
    Effect.gen(function* () {
      const { broken: failing, subscriber } = makeSubscriber("one")
      const partition = makePartition()
      failing.set("a/1", broken)
      yield* deliver(subscriber, partition.slice([record("a", 1)]))
      failing.clear()
      failing.set("a/2", Effect.fail(new PermanentFailure({ reason: "nobody can apply this" })))
      const here = yield* Effect.context<HoldRetries | ApplySlice | SqlClient.SqlClient>()
      let isFirst = true
      const meanwhile = Effect.suspend(() => {
        if (!isFirst) return Effect.void
        isFirst = false
        return Effect.andThen(
          Effect.andThen(deliver(subscriber, partition.slice([record("a", 2)])), Deliveries.retryAll(subscriber)).pipe(
            Effect.provideContext(here),
            Effect.orDie
          ),
          Effect.die(new FaultInjected("consumer.after-commit"))
        )
      })
      const other = yield* Layer.build(
        Layer.provide(
          Deliveries.again,
          Layer.succeed(Faults, {
            at: (point) => (point === "consumer.after-commit" ? meanwhile : Effect.void),
            around: (_, operation) => operation
          })
        )
      )
      yield* Deliveries.retryAll(subscriber).pipe(Effect.provideContext(Context.merge(here, other)))
      assert.isFalse(isFirst)
      assert.deepInclude(yield* holdOn("one", "a"), { status: "dead", eventId: idOf("a", 2), waitMillis: null })
    }).pipe(Effect.scoped, Effect.provide(process))
)

it.live("an operator's decision waits for a running attempt, and sees its result", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set("a/1", broken)
    yield* deliver(subscriber, makePartition().slice([record("a", 1), record("a", 2)]))
    failing.clear()
    const { goOn, isInside, slow } = yield* slowly(subscriber)
    const trying = yield* Effect.forkChild(Deliveries.retryAll(slow))
    yield* isInside
    const discard = yield* Effect.forkChild(Effect.flip(letters.discard("one", idOf("a", 1), operator)))
    yield* Counters.untilBlocked("the operator to wait for the try")
    yield* goOn
    yield* Fiber.join(trying)
    assert.include((yield* Fiber.join(discard)).message, "is applied")
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    assert.deepStrictEqual(yield* parkedOf("one", "a"), [])
  }).pipe(Effect.provide(process))
)

it.live("a hold that another process postponed after this one chose it is not tried", () =>
  Effect.gen(function* () {
    const { broken: failing, handled, subscriber } = makeSubscriber("one")
    const { retryHeld } = yield* HoldRetries
    failing.set("a/1", broken)
    yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    const sql = yield* SqlClient.SqlClient
    yield* sql`UPDATE inbox_holds SET next_attempt_at = clock_now()`
    handled.length = 0
    // The table's lock lets the round read which holds are due, and keeps it from locking one.
    const round = yield* whileLocked(
      sql`LOCK TABLE inbox_holds IN EXCLUSIVE MODE`,
      Effect.forkChild(retryHeld(subscriber)),
      sql`UPDATE inbox_holds SET attempts = 2, next_attempt_at = clock_now() + interval '1 hour'`
    )
    assert.strictEqual(yield* Fiber.join(round), 1)
    assert.deepStrictEqual(handled, [])
    assert.include(yield* holdOn("one", "a"), { status: "retrying", attempts: 2 })
  }).pipe(Effect.provide(process))
)

it.live("a hold that one process attempts does not make another process wait", () =>
  Effect.gen(function* () {
    const { broken: failing, handled, subscriber } = makeSubscriber("one")
    failing.set("a/1", broken)
    yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    failing.clear()
    handled.length = 0
    const { goOn, isInside, slow } = yield* slowly(subscriber)
    const trying = yield* Effect.forkChild(Deliveries.retryAll(slow))
    yield* isInside
    // The round of the other process ends while the first process is still in its attempt.
    yield* Effect.flatMap(HoldRetries, ({ retryHeld }) => retryHeld(subscriber)).pipe(Effect.provide(Deliveries.again))
    assert.deepStrictEqual(handled, ["a/1"])
    yield* goOn
    yield* Fiber.join(trying)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
  }).pipe(Effect.provide(process))
)

it.live(
  "an arrival whose hold was made and ended by others meanwhile makes its own, and its event is not to blame",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { subscriber } = makeSubscriber("one")
      const [isMade, mayEnd] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      // The arrival has looked for holds, found none, and now asks whether the missing version was given up.
      const arrival = yield* whileLocked(
        sql`LOCK TABLE outbox_dead_letters IN ACCESS EXCLUSIVE MODE`,
        Effect.forkChild(deliver(subscriber, makePartition().slice([record("a", 1), record("a", 3)]))),
        Effect.void,
        Effect.gen(function* () {
          yield* sql`
          INSERT INTO inbox_holds (consumer_name, aggregate_id, topic, event_id, status, attempts, held_at)
          VALUES ('one', 'a', ${Deliveries.topic}, ${idOf("a", 3)}, 'gap', 0, clock_now())`
          yield* Effect.forkChild(
            Transaction.run(
              Effect.gen(function* () {
                yield* HeldRows.lockHold({ consumer: "one", aggregateId: "a" }, "exclusive")
                yield* Deferred.succeed(isMade, undefined)
                yield* Deferred.await(mayEnd)
                yield* HeldRows.release({ consumer: "one", aggregateId: "a" })
              })
            )
          )
          yield* Deferred.await(isMade)
        })
      )
      yield* Counters.untilBlocked("the arrival to wait for the other hold's end")
      yield* Deferred.succeed(mayEnd, undefined)
      yield* Fiber.join(arrival)
      assert.include(yield* holdOn("one", "a"), { status: "gap", attempts: 0, eventId: idOf("a", 3) })
      assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 3)])
    }).pipe(Effect.provide(process))
)

it.live("a held event that another member has applied can't be discarded, and its next attempt removes it", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const letters = yield* InboxDeadLetters
    const { broken: failing, subscriber } = makeSubscriber("one")
    failing.set("a/1", broken)
    yield* deliver(subscriber, makePartition().slice([record("a", 1)]))
    yield* sql`INSERT INTO consumer_cursors VALUES ('one', 'a', 'Counter', 1)`
    const refusal = yield* Effect.flip(letters.discard("one", idOf("a", 1), operator))
    assert.include(refusal.message, "was applied meanwhile")
    yield* Deliveries.retryAll(subscriber)
    assert.isUndefined(yield* holdOn("one", "a"))
  }).pipe(Effect.provide(process))
)

it.live("an event that has become due and was not tried can't be discarded past a version that is missing", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const letters = yield* InboxDeadLetters
    const { subscriber } = makeSubscriber("one")
    yield* deliver(subscriber, makePartition().slice([record("a", 1), record("a", 3)]))
    // A sweep or an arrival has made it due, and no round has run since.
    yield* sql`UPDATE inbox_holds SET status = 'retrying', next_attempt_at = clock_now()`
    const refusal = yield* Effect.flip(letters.discard("one", idOf("a", 3), operator))
    assert.include(refusal.message, "has not been tried yet")
  }).pipe(Effect.provide(process))
)
