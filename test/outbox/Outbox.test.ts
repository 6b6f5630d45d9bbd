import { PgClient } from "@effect/sql-pg"
import { assert, it, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Ref, Result, Tracer } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { randomBytes } from "node:crypto"
import * as Envelope from "../../src/brokers/Envelope.ts"
import { EventRefused, Outbox } from "../../src/outbox/Outbox.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { LaneWakeup } from "../../src/outbox/LaneWakeup.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import type { FaultPoint } from "../../src/platform/Faults.ts"
import { Transaction, TransactionEnded } from "../../src/platform/Transaction.ts"
import { create, exists, increment, makeTables, queuedVersions } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

const versions = queuedVersions

const setUp = Layer.effectDiscard(makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer)
)

layer(setUp, { excludeTestServices: true })("Outbox", (it) => {
  it.effect("an aggregate's row and its events commit together, with contiguous versions in array order", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* Transaction.run(create("a")), { version: 1 })
      assert.deepStrictEqual(yield* Transaction.run(increment("a")), { version: 3 })
      assert.deepStrictEqual(yield* versions("a"), [1, 2, 3])
    })
  )

  it.effect("a rolled-back transaction leaves neither row nor event", () =>
    Effect.gen(function* () {
      const failure = yield* Effect.flip(Transaction.run(Effect.andThen(create("b"), Effect.fail("no"))))
      assert.strictEqual(failure, "no")
      assert.strictEqual(yield* exists("b"), false)
      assert.deepStrictEqual(yield* versions("b"), [])
    })
  )

  it.effect("a defect and an interruption roll back as a failure does", () =>
    Effect.gen(function* () {
      yield* Effect.exit(Transaction.run(Effect.andThen(create("b2"), Effect.die("bug"))))
      const reached = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(
        Transaction.run(
          Effect.andThen(create("b3"), Effect.andThen(Deferred.succeed(reached, undefined), Effect.never))
        )
      )
      yield* Deferred.await(reached)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual([yield* exists("b2"), yield* exists("b3")], [false, false])
      assert.deepStrictEqual([yield* versions("b2"), yield* versions("b3")], [[], []])
    })
  )

  it.effect("two services append in one transaction", () =>
    Effect.gen(function* () {
      yield* Transaction.run(Effect.all([create("c1"), create("c2"), increment("c1")]))
      assert.deepStrictEqual([yield* versions("c1"), yield* versions("c2")], [[1, 2, 3], [1]])
    })
  )

  it.effect("events of a rolled-back savepoint are gone, and the rest of the transaction commits", () =>
    Effect.gen(function* () {
      yield* Transaction.run(
        Effect.gen(function* () {
          yield* create("d1")
          yield* Effect.ignore(Transaction.run(Effect.andThen(create("d2"), Effect.fail("inner"))))
          yield* Transaction.run(create("d3"))
        })
      )
      assert.deepStrictEqual([yield* versions("d1"), yield* versions("d2"), yield* versions("d3")], [[1], [], [1]])
    })
  )

  it.effect("a serialization failure runs the whole transaction again, and its events are stored once", () =>
    Effect.gen(function* () {
      yield* Transaction.run(create("e"))
      const attempts = yield* Ref.make(0)
      const firstRead = yield* Deferred.make<void>()
      const otherDone = yield* Deferred.make<void>()
      const slow = Transaction.run(
        Effect.gen(function* () {
          const { sql } = yield* Transaction
          const attempt = yield* Ref.updateAndGet(attempts, (n) => n + 1)
          yield* sql`SELECT value FROM counters WHERE id = 'e'`
          if (attempt === 1) {
            yield* Deferred.succeed(firstRead, undefined)
            yield* Deferred.await(otherDone)
          }
          yield* increment("e")
        })
      ).pipe(Effect.provideService(SqlClient.BeginTransaction, "BEGIN ISOLATION LEVEL REPEATABLE READ"))
      const fiber = yield* Effect.forkChild(slow)
      yield* Deferred.await(firstRead)
      yield* Transaction.run(increment("e"))
      yield* Deferred.succeed(otherDone, undefined)
      yield* Fiber.join(fiber)
      assert.strictEqual(yield* Ref.get(attempts), 2)
      assert.deepStrictEqual(yield* versions("e"), [1, 2, 3, 4, 5])
    })
  )

  it.effect("a conflict is tried nine times in all, and any other failure once", () =>
    Effect.gen(function* () {
      const attempts = yield* Ref.make(0)
      const failing = (reason: SqlError.SqlError["reason"]) =>
        Effect.exit(
          Transaction.run(
            Effect.andThen(
              Ref.update(attempts, (n) => n + 1),
              Effect.fail(new SqlError.SqlError({ reason }))
            )
          )
        )
      const properties = { cause: new Error("on purpose"), message: "on purpose", operation: "execute" }
      yield* failing(new SqlError.ConstraintError(properties))
      assert.strictEqual(yield* Ref.getAndSet(attempts, 0), 1)
      yield* failing(new SqlError.SerializationError(properties))
      assert.strictEqual(yield* Ref.get(attempts), 9)
    })
  )

  it.effect("concurrent writers of one aggregate leave no gap and no duplicate version", () =>
    Effect.gen(function* () {
      yield* Transaction.run(create("f"))
      yield* Effect.forEach(Array.from({ length: 40 }), () => Transaction.run(increment("f")), {
        concurrency: "unbounded",
        discard: true
      })
      assert.deepStrictEqual(
        yield* versions("f"),
        Array.from({ length: 81 }, (_, index) => index + 1)
      )
    })
  )

  it.effect("a save that hits no row writes no event and says so", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Transaction.run(increment("nobody")))
      assert.strictEqual(error._tag, "NothingWritten")
      assert.deepStrictEqual(yield* versions("nobody"), [])
    })
  )

  it.effect("an event that could never be published is refused at once, and nothing is written", () =>
    Effect.gen(function* () {
      const circular: { self?: unknown } = {}
      circular.self = circular
      for (const data of [() => 0, 10n, circular, "x".repeat(900_001)]) {
        const error = yield* Effect.flip(Transaction.run(create("g", data)))
        assert.instanceOf(error, EventRefused)
      }
      assert.strictEqual(yield* exists("g"), false)
    })
  )

  it.effect("the largest event that is accepted is written", () =>
    Effect.gen(function* () {
      yield* Transaction.run(create("h", "x".repeat(899_000)))
      assert.deepStrictEqual(yield* versions("h"), [1])
    })
  )

  it.effect("the data is stored as it was encoded", () =>
    Effect.gen(function* () {
      const data = { b: 1, a: [1.5, "ü\u0000\ud800", null], z: { y: "2026" } }
      yield* Transaction.run(create("i", data))
      const sql = yield* SqlClient.SqlClient
      const [row] = yield* sql<{
        readonly text: string
      }>`SELECT data::text AS text FROM outbox_events WHERE aggregate_id = 'i'`
      assert.strictEqual(row?.text, JSON.stringify(data))
    })
  )

  it.effect("the lane is woken after the commit, and never after a rollback", () =>
    Effect.gen(function* () {
      const wakeup = yield* LaneWakeup
      const woken: Array<number> = []
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* wakeup.onWake((lanes) => void woken.push(...lanes))
          yield* Effect.exit(Transaction.run(Effect.andThen(create("j"), Effect.fail("no"))))
          assert.deepStrictEqual(woken, [])
          yield* Transaction.run(
            Effect.andThen(
              create("j"),
              Effect.sync(() => assert.deepStrictEqual(woken, []))
            )
          )
          assert.deepStrictEqual(woken, [laneOf("j")])
        })
      )
    })
  )

  it.effect("a handle that leaves its transaction is a defect, not a write outside of it", () =>
    Effect.gen(function* () {
      const leaked = yield* Transaction.run(Effect.service(Transaction))
      const exit = yield* Effect.exit(Effect.provideService(create("k"), Transaction, leaked))
      assert.isTrue(Exit.isFailure(exit) && String(exit.cause).includes(TransactionEnded.name))
      assert.strictEqual(yield* exists("k"), false)
    })
  )

  it.effect("a handle used from another fiber writes in its own transaction and nowhere else", () =>
    Effect.gen(function* () {
      const pool = yield* PgClient.PgClient
      yield* Effect.exit(
        Transaction.run(
          Effect.gen(function* () {
            const handle = yield* Transaction
            // A context without the driver's transaction, so that only the handle decides where the statement runs.
            yield* Effect.promise(() =>
              Effect.runPromise(Effect.asVoid(handle.sql`INSERT INTO counters VALUES ('l', 1, 0)`))
            )
            assert.strictEqual(
              (yield* Effect.promise(() => Effect.runPromise(pool`SELECT 1 FROM counters WHERE id = 'l'`))).length,
              0
            )
            return yield* Effect.fail("roll back")
          })
        )
      )
      assert.strictEqual(yield* exists("l"), false)
    })
  )

  it.effect("a SqlError that no caller handles becomes a defect, and rolls everything back", () =>
    Effect.gen(function* () {
      yield* Transaction.run(create("m"))
      const exit = yield* Effect.exit(Transaction.run(Effect.andThen(create("n"), create("m"))))
      assert.isTrue(
        Exit.isFailure(exit) &&
          exit.cause.reasons.some((reason) => reason._tag === "Die" && SqlError.isSqlError(reason.defect))
      )
      assert.strictEqual(yield* exists("n"), false)
    })
  )

  it.effect(
    "an event that a broker, a consumer or an index can't take is refused at once, and nothing is written",
    () =>
      Effect.gen(function* () {
        const outbox = yield* Outbox
        const append = (
          aggregateType: string,
          aggregateId: string,
          eventType = "Placed",
          schemaVersion = 1,
          topic = "orders"
        ) =>
          Transaction.run(
            outbox.append({ topic, aggregateType, aggregateId }, 1, [{ eventType, schemaVersion, data: {} }])
          )
        const reasons = yield* Effect.forEach(
          [
            append("Order", "q".repeat(501)),
            append("Order", "€".repeat(334)),
            append("", "q"),
            append("Order", "q\0"),
            append("Order\ud800", "q"),
            append("Order", "q", "x".repeat(501)),
            append("Order", "q", ""),
            append("Order", "q", "Placed", 0),
            append("Order", "q", "Placed", 32_768),
            append("Order", "q", "Placed", 1, "all orders"),
            append("Order", "q", "Placed", 1, "..")
          ],
          (refused) => Effect.map(Effect.flip(refused), ({ reason }) => reason)
        )
        assert.deepStrictEqual(reasons, [
          "its aggregateId has 501 characters, and 500 are allowed",
          "its aggregateId takes 1002 bytes, and 1000 are allowed",
          "its aggregateType is empty",
          "its aggregateId has a NUL or half a character in it",
          "its aggregateType has a NUL or half a character in it",
          "its eventType has 501 characters, and 500 are allowed",
          "its eventType is empty",
          "its schemaVersion 0 is not between 1 and 32767",
          "its schemaVersion 32768 is not between 1 and 32767",
          `its topic "all orders" is not a topic's name`,
          `its topic ".." is not a topic's name`
        ])
        assert.deepStrictEqual(yield* versions("q"), [])
      })
  )

  it.effect("a write that hits several rows is a defect, and nothing of it is written", () =>
    Effect.gen(function* () {
      const outbox = yield* Outbox
      for (const id of ["r1", "r2"]) yield* Transaction.run(create(id))
      const exit = yield* Effect.exit(
        Transaction.run(
          Effect.flatMap(Transaction, ({ sql }) =>
            outbox.save(
              { topic: "orders", aggregateType: "Counter", aggregateId: "r1" },
              [{ eventType: "Placed", schemaVersion: 1, data: {} }],
              sql<{
                readonly version: number
              }>`UPDATE counters SET version = version + 1 WHERE id IN ('r1', 'r2') RETURNING version`
            )
          )
        )
      )
      assert.match(String(exit), /the write of Counter r1 hits several rows/)
      assert.deepStrictEqual(yield* versions("r1"), [1])
    })
  )

  it.effect("the longest names there can be are published, read and archived", () =>
    Effect.gen(function* () {
      const outbox = yield* Outbox
      const sql = yield* PgClient.PgClient
      // Rows that other tests have left in the lane may be more than a fetch returns.
      yield* sql`DELETE FROM outbox_events`
      // Random names, since an index compresses repetitions.
      const name = Array.from(randomBytes(500), (byte) => String.fromCharCode(0x100 + byte)).join("")
      yield* Transaction.run(
        outbox.append({ topic: "orders", aggregateType: name, aggregateId: name }, 1, [
          { eventType: name, schemaVersion: 1, data: {} }
        ])
      )
      const queue = yield* Queue
      const event = (yield* Lanes.fetch(queue, laneOf(name), [])).find(({ aggregateId }) => aggregateId === name)
      const read = Result.getOrThrow(Envelope.decode(Envelope.toRecord(event!)))
      assert.deepInclude(read, { aggregateType: name, aggregateId: name, eventType: name })
      yield* Lanes.mark(queue, laneOf(name), [event!], { partition: 0, baseOffset: 0n })
      assert.deepStrictEqual(yield* versions(name), [])
      const consumer = "c".repeat(100)
      yield* sql`INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version) VALUES (${consumer}, ${name}, ${name}, 1)`
    }).pipe(Effect.provide(Queue.layer))
  )

  it.effect(
    "an event is part of its request's trace, or of a new trace if the request's ids are not valid on the wire",
    () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        const traceOf = Effect.fnUntraced(function* (
          id: string,
          span?: { readonly traceId: string; readonly spanId: string }
        ) {
          const created = Transaction.run(create(id))
          yield* span === undefined ? created : Effect.withParentSpan(created, Tracer.externalSpan(span))
          const [row] = yield* sql<{ readonly traceId: string; readonly spanId: string }>`
          SELECT trace_id AS "traceId", span_id AS "spanId" FROM outbox_events WHERE aggregate_id = ${id}`
          return row!
        })
        const span = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: "00f067aa0ba902b7" }
        assert.deepStrictEqual(yield* traceOf("o1", span), span)
        const own = [yield* traceOf("o2"), yield* traceOf("o3", { traceId: "request 7", spanId: "step 1" })]
        for (const { spanId, traceId } of own) {
          assert.match(traceId, /^[0-9a-f]{32}$/)
          assert.match(spanId, /^[0-9a-f]{16}$/)
        }
        assert.notStrictEqual(own[0]!.traceId, own[1]!.traceId)
      })
  )
})

it.live("a failure outbox.after-append rolls everything back, and one after the commit rolls nothing back", () =>
  Effect.gen(function* () {
    const control = yield* FaultInjection.FaultControl
    const failOnce = (point: FaultPoint) => control.set(point, { action: "fail", times: 1, delayMillis: 0 })
    yield* failOnce("outbox.after-append")
    assert.isTrue(Exit.isFailure(yield* Effect.exit(Transaction.run(create("p1")))))
    yield* failOnce("outbox.after-commit")
    yield* Transaction.run(create("p2"))
    yield* failOnce("outbox.after-wake")
    yield* Transaction.run(create("p3"))
    assert.deepStrictEqual(yield* control.list, [], "each has struck")
    assert.deepStrictEqual([yield* versions("p1"), yield* versions("p2"), yield* versions("p3")], [[], [1], [1]])
  }).pipe(Effect.provide(setUp), Effect.provide(TestProcess.quiet), Effect.provide(FaultInjection.layer()))
)
