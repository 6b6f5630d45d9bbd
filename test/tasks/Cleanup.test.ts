/** The end of the retention of finished tasks: they are kept until the last day is over, and deleted right after it. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import * as TaskCleanup from "../../src/tasks/TaskCleanup.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { advance, enqueue, enqueuer, install, plain, rows } from "./Support.ts"

const services = Layer.effectDiscard(install).pipe(
  Layer.provideMerge(enqueuer),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** One task that is completed and one that is cancelled, both now. */
const finishTwo = Effect.gen(function* () {
  const tasks = yield* Tasks
  const completed = yield* enqueue(plain, { number: 1 })
  const cancelled = yield* enqueue(plain, { number: 2 })
  yield* Transaction.run(tasks.settle(completed.taskId))
  yield* tasks.cancel(cancelled.taskId, { actor: "ann", reason: "a test" })
})

it.live("a finished task is kept for 30 days less a minute, and gone a minute after them", () =>
  Effect.gen(function* () {
    // Enqueued long before it ends: the retention counts from its end.
    yield* enqueue(plain, { number: 3 })
    yield* advance("40 days")
    yield* finishTwo
    yield* advance("29 days 23 hours 59 minutes")
    assert.strictEqual(yield* TaskCleanup.countExpired(30), 0)
    assert.strictEqual(yield* TaskCleanup.deleteExpired(30), 0)
    yield* advance("2 minutes")
    assert.strictEqual(yield* TaskCleanup.countExpired(30), 2)
    assert.strictEqual(yield* TaskCleanup.deleteExpired(30), 2)
    assert.deepStrictEqual(
      (yield* rows).map(({ number, state }) => [number, state]),
      [[3, "pending"]]
    )
  }).pipe(Effect.provide(services))
)

it.live("maintenance deletes tasks by the retention of tasks, and by no other", () =>
  Effect.gen(function* () {
    const ofTasks = (report: Maintenance.Report) =>
      report.flatMap(({ rows, table }) => (table === "outbox_tasks" ? [rows] : []))
    const bothRuns = Effect.zip(Maintenance.runOnce({ dryRun: true }), Maintenance.runOnce())
    yield* finishTwo
    yield* advance("4 days 23 hours 59 minutes")
    assert.deepStrictEqual((yield* bothRuns).map(ofTasks), [[], []])
    yield* advance("2 minutes")
    assert.deepStrictEqual((yield* bothRuns).map(ofTasks), [[2], [2]])
  }).pipe(
    Effect.provide(services),
    Effect.provideService(RetentionSettings, { outboxDays: 2, inboxDays: 9, taskDays: 5 })
  )
)

it.live("a retention of 0 days keeps finished tasks, and a dry run counts none of them", () =>
  Effect.gen(function* () {
    yield* finishTwo
    yield* advance("400 days")
    assert.strictEqual(yield* TaskCleanup.countExpired(0), 0)
    assert.strictEqual(yield* TaskCleanup.deleteExpired(0), 0)
  }).pipe(Effect.provide(services))
)
