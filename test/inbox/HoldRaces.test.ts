/** Races over a held aggregate: members that believe to own its partition, attempts in two processes, and operators. */
import { assert, it } from "@effect/vitest"
import { Cause, Context, Deferred, Effect, Fiber, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import type { Slice } from "../../src/brokers/Broker.ts"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import * as HeldRows from "../../src/inbox/holds/HeldRows.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure, type Subscriber } from "../../src/inbox/Subscriber.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Faults } from "../../src/platform/Faults.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, garbage, holdOn, idOf, makePartition, makeSubscriber, parkedOf, record } = Deliveries

const operator = { actor: "test", reason: "a race" }
const aggregates = Array.from({ length: 6 }, (_, index) => `id-${index}`)
const versions = 60

it.live(
  "zombies, failures, retries in two processes, redrives and discards: each effect once, in order, and no row is left over",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const letters = yield* InboxDeadLetters
      const { broken, subscriber } = makeSubscriber("one")
      /** Defects of the test's fibers; there must be none. */
      const defects: Array<Cause.Cause<unknown>> = []
      const note = (cause: Cause.Cause<unknown>) =>
        Effect.sync(() => {
          if (!Cause.hasInterruptsOnly(cause)) defects.push(cause)
        })
      const pause = (millis: number) => Effect.flatMap(Random.next, (random) => Effect.sleep(random * millis))

      // Some events come twice, some too early, and some records can't be read.
      const partition = makePartition()
      const slices: Array<Slice> = []
      for (let version = 1; version <= versions; version++) {
        const records = aggregates.flatMap((id) =>
          version % 7 === 3 ? [record(id, version + 1)] : [record(id, version)]
        )
        const late = version % 7 === 4 ? aggregates.map((id) => record(id, version - 1)) : []
        if (version % 20 === 0) records.push(garbage(aggregates[version % aggregates.length]!) as never)
        slices.push(partition.slice([...records, ...late]))
      }
      for (const id of aggregates) {
        for (let version = 1; version <= versions; version++) {
          if ((yield* Random.next) < 0.15) broken.set(`${id}/${version}`, Effect.fail(new Error("out of paper")))
        }
      }
      // One event always fails, so that there is an event to give up, however slow the operators are.
      const stubborn = { id: aggregates[0]!, version: 6 }
      broken.set(`${stubborn.id}/${stubborn.version}`, Effect.fail(new Error("out of paper")))
      const first = yield* Effect.context<HoldRetries | ApplySlice>()
      const second = yield* Layer.build(Deliveries.again)
      const processes = [first, second]
      const member = (context: Context.Context<ApplySlice>, one: Subscriber) =>
        Effect.forEach(
          slices,
          (slice) =>
            Effect.andThen(
              Effect.flatMap(ApplySlice, ({ run }) => run(one, slice)),
              pause(15)
            ).pipe(Effect.tapCause(note)),
          { discard: true }
        ).pipe(Effect.provideContext(context))
      const retries = Effect.forEach(processes, (context) =>
        Effect.flatMap(HoldRetries, ({ retryHeld }) => retryHeld(subscriber)).pipe(
          Effect.andThen(pause(10)),
          Effect.tapCause(note),
          Effect.forever,
          Effect.provideContext(context),
          Effect.forkScoped
        )
      )
      let givenUp = false
      /** An operator who discards the first event, and then decides at random. */
      const decide = Effect.gen(function* () {
        const rows = yield* sql<{ readonly id: string }>`
          SELECT event_id AS id FROM inbox_holds UNION ALL (SELECT event_id FROM inbox_parked LIMIT 3) ORDER BY 1 LIMIT 8`
        for (const { id } of rows) {
          const random = yield* Random.next
          const gives = random < 0.2 || (!givenUp && !id.includes(":"))
          yield* Effect.exit(gives ? letters.discard("one", id, operator) : letters.retry("one", id, operator)).pipe(
            Effect.tap((exit) =>
              Effect.sync(() => {
                givenUp ||= gives && exit._tag === "Success" && !id.includes(":")
              })
            ),
            Effect.tap((exit) =>
              // A decision may be refused; a defect is a bug.
              exit._tag === "Failure" && exit.cause.reasons.some((reason) => reason._tag === "Die")
                ? Effect.failCause(exit.cause)
                : Effect.void
            )
          )
        }
        yield* pause(15)
      }).pipe(Effect.tapCause(note))
      const mend = Effect.gen(function* () {
        for (const name of broken.keys()) {
          if ((yield* Random.next) < 0.2 && name !== `${stubborn.id}/${stubborn.version}`) broken.delete(name)
        }
        yield* pause(100)
      })
      yield* retries
      const others = yield* Effect.forEach([mend, decide, decide], (one) => Effect.forkScoped(Effect.forever(one)))
      // Two members in two processes have the same records. Each believes that it owns the partition.
      yield* Effect.forEach(processes, (context) => member(context, subscriber), { concurrency: "unbounded" })

      yield* Effect.forEach(others, Fiber.interrupt)
      if (!givenUp) yield* letters.discard("one", idOf(stubborn.id, stubborn.version), operator)
      broken.clear()
      yield* letters.retryAll({}, operator)
      yield* Counters.eventually(
        "all to be applied or given up",
        Effect.gen(function* () {
          // As a consumer does before each round: a late member may have recorded a gap after the missing event came.
          yield* Effect.flatMap(HoldRetries, ({ sweepGaps }) => sweepGaps("one"))
          // An unreadable record is discarded, since another attempt can't read it either.
          const dead = yield* sql<{ readonly id: string }>`SELECT event_id AS id FROM inbox_holds WHERE status = 'dead'`
          yield* Effect.forEach(dead, ({ id }) =>
            Effect.ignore(id.includes(":") ? letters.discard("one", id, operator) : letters.retry("one", id, operator))
          )
          return (yield* sql`SELECT 1 AS one FROM inbox_holds LIMIT 1`).length === 0
        })
      )

      const marked = yield* Deliveries.markedOf("one")
      let discarded = 0
      for (const id of aggregates) {
        const rows = yield* sql<{ readonly version: number }>`
          SELECT aggregate_version AS version FROM inbox_dead_letters
          WHERE aggregate_id = ${id} AND status = 'discarded' AND aggregate_version IS NOT NULL`
        const given = new Set(rows.map(({ version }) => version))
        discarded += given.size
        const expected = Array.from({ length: versions }, (_, index) => index + 1).filter(
          (version) => !given.has(version)
        )
        assert.deepStrictEqual(yield* effectsOf("one", id), expected, `${id}: each once, in order`)
        for (const version of expected) assert.isTrue(marked.has(idOf(id, version)))
        for (const version of given) assert.isFalse(marked.has(idOf(id, version)), "what was given up is not marked")
      }
      assert.deepStrictEqual(defects, [])
      // Without these races the test would prove nothing.
      assert.isAbove(discarded, 0)
      const [count] = yield* sql<{ readonly retries: number; readonly parked: number }>`
        SELECT (SELECT count(*) FROM operator_audit WHERE action = 'retry')::int4 AS retries,
               (SELECT count(*) FROM inbox_parked)::int4 AS parked`
      assert.isAbove(count?.retries ?? 0, 0)
      assert.strictEqual(count?.parked, 0)
    }).pipe(
      Effect.scoped,
      Effect.provide(Deliveries.process),
      Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 2, maxAttempts: 3 }))
    ),
  120_000
)

/**
 * A transaction runs `first` on the hold of "a". Another member hands out the same slice again, until it waits for a lock of the
 * transaction. Then the transaction commits.
 */
const meanwhile = (first: Effect.Effect<void, unknown, Transaction>, slice: Slice) =>
  Effect.gen(function* () {
    const { subscriber } = makeSubscriber("one")
    const isDone = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    const other = yield* Effect.forkChild(
      Transaction.run(
        Effect.gen(function* () {
          yield* HeldRows.lockHold({ consumer: "one", aggregateId: "a" }, "attempt")
          yield* first
          yield* Deferred.succeed(isDone, undefined)
          yield* Deferred.await(goOn)
        })
      )
    )
    yield* Deferred.await(isDone)
    const arrival = yield* Effect.forkChild(deliver(subscriber, slice))
    yield* Counters.untilBlocked("the arrival to wait for the transaction")
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(other)
    yield* Fiber.join(arrival)
  })

it.live("an event that becomes a dead letter while another member parks it again is not parked as well", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { broken, subscriber } = makeSubscriber("one")
    broken.set("a/1", Effect.fail(new Error("out of paper")))
    const slice = makePartition().slice([record("a", 1), record("a", 2)])
    yield* deliver(subscriber, slice)
    const held = { consumer: "one", aggregateId: "a" }
    const eventId = idOf("a", 1)
    yield* meanwhile(
      Effect.andThen(
        HeldRows.bury(held, eventId, "dead"),
        HeldRows.setWaiting(held, { status: "dead", eventId, error: "out of paper" })
      ),
      slice
    )
    assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 2)])
    yield* letters.retry("one", eventId, operator)
    broken.clear()
    yield* Deliveries.retryAll(subscriber)
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
    assert.isUndefined(yield* holdOn("one", "a"))
  }).pipe(Effect.provide(Deliveries.process))
)

it.live("an unreadable record that is discarded while another member reads it is not held again", () =>
  Effect.gen(function* () {
    const { broken, subscriber } = makeSubscriber("one")
    broken.set("a/1", Effect.fail(new Error("out of paper")))
    const slice = makePartition().slice([record("a", 1), garbage("a")])
    yield* deliver(subscriber, slice)
    const held = { consumer: "one", aggregateId: "a" }
    const [first, second] = yield* parkedOf("one", "a")
    yield* meanwhile(
      Effect.gen(function* () {
        yield* HeldRows.bury(held, second!, "discarded")
        yield* HeldRows.bury(held, first!, "discarded")
        const { sql } = yield* Transaction
        yield* sql`INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version) VALUES ('one', 'a', 'Counter', 1)`
        yield* HeldRows.release(held)
      }),
      slice
    )
    assert.isUndefined(yield* holdOn("one", "a"))
    yield* deliver(subscriber, makePartition().slice([record("a", 2)]))
    assert.deepStrictEqual(yield* effectsOf("one", "a"), [2])
  }).pipe(Effect.provide(Deliveries.process))
)

/**
 * The first event behind a hold is applied in one process. Before that process looks at what is left, the next event comes to another one, and
 * fails there with `error`.
 */
const failsInBetween = (error: Error | PermanentFailure) =>
  Effect.gen(function* () {
    const { broken, handled, subscriber } = makeSubscriber("one")
    const partition = makePartition()
    broken.set("a/1", Effect.fail(new Error("out of paper")))
    yield* deliver(subscriber, partition.slice([record("a", 1)]))
    broken.clear()
    broken.set("a/2", Effect.fail(error))
    const here = yield* Effect.context<HoldRetries | ApplySlice | SqlClient.SqlClient>()
    let isFirst = true
    const meanwhile = Effect.suspend(() => {
      if (!isFirst) return Effect.void
      isFirst = false
      return Effect.andThen(
        deliver(subscriber, partition.slice([record("a", 2)])),
        Deliveries.retryAll(subscriber)
      ).pipe(Effect.provideContext(here), Effect.orDie)
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
    return { handled, hold: yield* holdOn("one", "a") }
  }).pipe(
    Effect.scoped,
    Effect.provide(Deliveries.process),
    // So long that no event is due again during the test.
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 86_400_000, maxAttempts: 3 }))
  )

it.live("an event that another member gives up between two transactions of an attempt stays given up", () =>
  Effect.gen(function* () {
    const { handled, hold } = yield* failsInBetween(new PermanentFailure({ reason: "nobody can apply this" }))
    assert.deepInclude(hold, { status: "dead", eventId: idOf("a", 2), waitMillis: null })
    assert.deepStrictEqual(handled, ["a/1", "a/1", "a/2"])
  })
)

it.live("a failure that another member counts between two transactions of an attempt stays counted", () =>
  Effect.gen(function* () {
    const { handled, hold } = yield* failsInBetween(new Error("out of paper"))
    assert.deepInclude(hold, { status: "retrying", eventId: idOf("a", 2), attempts: 1 })
    assert.isAbove(hold?.waitMillis ?? 0, 0)
    assert.deepStrictEqual(handled, ["a/1", "a/1", "a/2"])
  })
)
