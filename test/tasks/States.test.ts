/** The effect of settle, hasten, cancel and retry on a task in each of its states, and the limits of enqueuing. */
import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { maxPayloadLength } from "../../src/tasks/EnqueueOptions.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskId, TaskState } from "../../src/tasks/TaskType.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { enqueue, enqueuer, plain, rows } from "./Support.ts"

const services = enqueuer.pipe(Layer.provideMerge(TestDatabase.layer))

const operator = { actor: "ann", reason: "a test" }
const all: ReadonlyArray<TaskState> = ["pending", "processing", "completed", "failed", "dead", "cancelled"]

const clear = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`TRUNCATE outbox_tasks, operator_audit CASCADE`)

/** The only task, in this state after two runs, and due in an hour. */
const taskIn = Effect.fnUntraced(function* (state: TaskState) {
  yield* clear
  const sql = yield* SqlClient.SqlClient
  const { taskId } = yield* enqueue(plain, { number: 1 }, { idempotencyKey: "a", delayMillis: 3_600_000 })
  const isFinished = state === "completed" || state === "dead" || state === "cancelled"
  yield* sql`
    UPDATE outbox_tasks SET state = ${state}, attempts = 2, token = 2,
      finished_at = ${isFinished ? sql`clock_now()` : sql`NULL`},
      lease_until = ${state === "processing" ? sql`clock_now() + interval '1 minute'` : sql`NULL`}`
  return taskId
})

/** The result of `act` for a task in each state. */
const outcomes = <A, E, R>(act: (taskId: TaskId) => Effect.Effect<A, E, R>) =>
  Effect.forEach(all, (state) =>
    Effect.gen(function* () {
      yield* Effect.ignore(act(yield* taskIn(state)))
      const [row] = yield* rows
      return [state, row!.state] as const
    })
  ).pipe(Effect.map((found) => Object.fromEntries(found)))

const unchanged = Object.fromEntries(all.map((state) => [state, state]))

layer(services, { excludeTestServices: true })("a task by state", (it) => {
  it.effect(
    "settle completes a task that waits or is dead, and leaves one that runs, is completed or is cancelled",
    () =>
      Effect.gen(function* () {
        const tasks = yield* Tasks
        const settled = { ...unchanged, pending: "completed", failed: "completed", dead: "completed" }
        assert.deepStrictEqual(yield* outcomes((taskId) => Transaction.run(tasks.settle(taskId))), settled)
        assert.deepStrictEqual(yield* outcomes(() => Transaction.run(tasks.settleByKey(plain, "a"))), settled)
      })
  )

  it.effect("cancel cancels a task that waits or is dead, and asks one that runs to stop", () =>
    Effect.gen(function* () {
      const tasks = yield* Tasks
      assert.deepStrictEqual(yield* outcomes((taskId) => tasks.cancel(taskId, operator)), {
        ...unchanged,
        pending: "cancelled",
        failed: "cancelled",
        dead: "cancelled"
      })
      for (const state of all) {
        const taskId = yield* taskIn(state)
        yield* Effect.ignore(tasks.cancel(taskId, operator))
        assert.strictEqual((yield* tasks.get(taskId)).cancelRequested, state === "processing", state)
      }
    })
  )

  it.effect("retry makes a waiting task due now, and restarts a dead or cancelled one", () =>
    Effect.gen(function* () {
      const tasks = yield* Tasks
      for (const [state, after, attempts] of [
        ["pending", "pending", 0],
        ["failed", "failed", 2],
        ["dead", "pending", 0],
        ["cancelled", "pending", 0]
      ] as const) {
        const taskId = yield* taskIn(state)
        assert.deepStrictEqual(yield* tasks.retry(taskId, operator), { taskId, state: after, changed: true })
        const [row] = yield* rows
        assert.deepInclude(row, { state: after, attempts })
        assert.isAtMost(row!.dueSeconds, 0, state)
      }
      for (const state of ["processing", "completed"] as const) {
        const taskId = yield* taskIn(state)
        assert.deepStrictEqual(yield* tasks.retry(taskId, operator), { taskId, state, changed: false })
        assert.deepInclude((yield* rows)[0], { state, attempts: 2 })
      }
    })
  )

  it.effect("hasten brings a waiting task forward, and never delays one", () =>
    Effect.gen(function* () {
      const tasks = yield* Tasks
      for (const state of all) {
        const taskId = yield* taskIn(state)
        yield* Transaction.run(tasks.hasten(taskId, 60_000))
        const [row] = yield* rows
        const waits = state === "pending" || state === "failed"
        assert.isAtMost(row!.dueSeconds, waits ? 60 : 3_600, state)
        assert.isAbove(row!.dueSeconds, waits ? 0 : 1_800, state)
        yield* Transaction.run(tasks.hasten(taskId, 7_200_000))
        assert.isAtMost((yield* rows)[0]!.dueSeconds, row!.dueSeconds, state)
      }
    })
  )

  it.effect(
    "the lowest and highest priority, the longest delay and the largest payload are taken, and nothing beyond",
    () =>
      Effect.gen(function* () {
        yield* clear
        const text = { ...plain, name: "text", payload: Schema.String }
        const isTaken = (...args: Parameters<typeof enqueue>) =>
          Effect.map(Effect.exit(enqueue(...args)), Exit.isSuccess)
        const tenYears = 10 * 366 * 86_400_000
        for (const priority of [-5, 5]) assert.isTrue(yield* isTaken(plain, { number: 1 }, { priority }))
        for (const priority of [-6, 6, 0.5]) assert.isFalse(yield* isTaken(plain, { number: 1 }, { priority }))
        assert.isTrue(yield* isTaken(plain, { number: 1 }, { delayMillis: tenYears }))
        assert.isFalse(yield* isTaken(plain, { number: 1 }, { delayMillis: tenYears + 1 }))
        // JSON escapes each of its quotes to two characters.
        assert.isTrue(yield* isTaken(text, "x".repeat(maxPayloadLength - 2)))
        assert.isFalse(yield* isTaken(text, "x".repeat(maxPayloadLength - 1)))
      })
  )
})
