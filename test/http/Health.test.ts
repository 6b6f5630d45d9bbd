/** Health when the database or a part of the service does not answer. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Health, HealthParts, Readiness } from "../../src/http/Health.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A database that reads requests and does not answer. */
const silent = Layer.succeed(SqlClient.SqlClient, (() => Effect.never) as never)

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
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Health.layer.pipe(
        Layer.provideMerge(Layer.mergeAll(HealthParts.layer, Readiness.layer, Fibers.layer, silent)),
        Layer.provideMerge(TestProcess.quiet)
      )
    )
  )
)
