/**
 * A worker as a process of its own, for tests that kill and freeze it. It writes a row with each task's end, and prints a line when one
 * begins.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect, Layer, Redacted, Result, Schema } from "effect"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import { TaskWorkers } from "../../src/tasks/TaskWorkers.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { enqueuer, plain, settings, steps } from "./Support.ts"
import * as WorkerProtocol from "./WorkerProtocol.ts"

const handler = (slowMillis: number) =>
  TaskHandler.make(plain, ({ attempt, payload }) =>
    Effect.gen(function* () {
      yield* Console.log(JSON.stringify({ began: payload.number, attempt } satisfies WorkerProtocol.Began))
      // Tasks take different times, so that some are killed in the middle.
      yield* Effect.sleep(slowMillis * (payload.number % 4))
      return Effect.gen(function* () {
        const { sql } = yield* Transaction
        yield* sql`INSERT INTO effects (number, attempt, pid) VALUES (${payload.number}, ${attempt}::int4, ${process.pid}::int4)`
      })
    })
  )

const program = Effect.gen(function* () {
  const given = yield* Config.schema(Schema.fromJsonString(WorkerProtocol.Settings), WorkerProtocol.variable)
  yield* Layer.build(
    TaskWorkers.layer([handler(given.slowMillis)]).pipe(
      Layer.provide(steps),
      Layer.provide(enqueuer),
      Layer.provide(FaultInjection.layer(Result.getOrThrow(FaultInjection.parse(given.faults)))),
      Layer.provide(settings(WorkerProtocol.timing)),
      Layer.provide(Layer.succeed(TestDatabase, { url: Redacted.make(given.databaseUrl), name: "given" })),
      Layer.provide(TestProcess.quiet)
    )
  )
  yield* Console.log(JSON.stringify({ ready: true, url: null }))
  return yield* Effect.never
}).pipe(Effect.scoped)

NodeRuntime.runMain(program)
