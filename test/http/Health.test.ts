/** Health when the database or a part of the service does not answer, and when many ask. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Health, HealthParts, Readiness } from "../../src/http/Health.ts"
import * as OutageLog from "../../src/operations/OutageLog.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A database that reads requests and does not answer. */
const silent = Layer.succeed(SqlClient.SqlClient, (() => Effect.never) as never)

const answering = Layer.succeed(SqlClient.SqlClient, (() => Effect.succeed([])) as never)

const healthOver = (database: typeof silent) =>
  Health.layer.pipe(Layer.provideMerge(Layer.mergeAll(HealthParts.layer, Readiness.layer, Fibers.layer, database)))

it.effect("health answers in time, although neither the database nor a part does", () =>
  Effect.gen(function* () {
    const { add } = yield* HealthParts
    yield* add({ name: "inbox", report: Effect.never })
    const { report } = yield* Health
    const asking = yield* Effect.forkChild(report)
    // A prober waits for one to three seconds.
    yield* TestClock.adjust("2 seconds")
    const { parts, status } = yield* Fiber.join(asking)
    assert.strictEqual(status, "unready")
    assert.strictEqual(parts["database"]?.status, "unready")
    assert.strictEqual(parts["inbox"]?.status, "degraded")
  }).pipe(Effect.scoped, Effect.provide(healthOver(silent).pipe(Layer.provideMerge(TestProcess.quiet))))
)

it.effect("all who ask share one look, under way or younger than a second, and none ends it by leaving", () =>
  Effect.gen(function* () {
    const { add } = yield* HealthParts
    const { begin, drain } = yield* Readiness
    const seen = yield* Deferred.make<void>()
    let looks = 0
    yield* begin
    yield* add({
      name: "inbox",
      report: Effect.suspend(() => {
        looks++
        return Effect.as(Deferred.await(seen), { status: "ready", looks })
      })
    })
    const { report } = yield* Health
    const first = yield* Effect.forkChild(report, { startImmediately: true })
    const others = yield* Effect.forkChild(Effect.replicateEffect(report, 50, { concurrency: "unbounded" }), {
      startImmediately: true
    })
    yield* Fiber.interrupt(first)
    // Longer than a report is fresh: a look that hangs is not joined by another one.
    yield* TestClock.adjust(1_500)
    const late = yield* Effect.forkChild(report, { startImmediately: true })
    yield* Deferred.succeed(seen, undefined)
    for (const { parts, status } of yield* Fiber.join(others)) {
      assert.deepStrictEqual([status, parts["inbox"]?.["looks"]], ["ready", 1])
    }
    assert.strictEqual((yield* Fiber.join(late)).parts["inbox"]?.["looks"], 1)
    assert.strictEqual((yield* report).parts["inbox"]?.["looks"], 2)
    yield* TestClock.adjust(999)
    assert.strictEqual((yield* report).parts["inbox"]?.["looks"], 2)
    // What this process knows of itself is told at once.
    yield* drain
    assert.strictEqual((yield* report).status, "unready")
    yield* TestClock.adjust(1)
    assert.strictEqual((yield* report).parts["inbox"]?.["looks"], 3)
  }).pipe(Effect.scoped, Effect.provide(healthOver(answering)))
)

it.effect("a part that does not answer is a line in the log, without a stack, however many ask", () => {
  const lines: Array<string> = []
  const log = Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void lines.push(line))])
  return Effect.gen(function* () {
    const { add } = yield* HealthParts
    yield* add({ name: "inbox", report: Effect.never })
    const { report } = yield* Health
    for (let round = 0; round < 5; round++) {
      const asking = yield* Effect.forkChild(Effect.replicateEffect(report, 50, { concurrency: "unbounded" }))
      yield* TestClock.adjust("3 seconds")
      for (const { parts } of yield* Fiber.join(asking)) assert.strictEqual(parts["inbox"]?.status, "degraded")
    }
    assert.lengthOf(lines, 1)
    assert.match(lines[0]!, /the part inbox of health is unavailable: no answer in 2000 ms/)
    assert.notInclude(lines[0]!, "    at ")
  }).pipe(
    Effect.scoped,
    Effect.provide(healthOver(answering).pipe(Layer.provideMerge(OutageLog.layer), Layer.provideMerge(log)))
  )
})
