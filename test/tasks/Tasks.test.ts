import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskId } from "../../src/tasks/TaskType.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { enqueue, enqueuer, plain, rows, taskType } from "./Support.ts"

const services = enqueuer.pipe(Layer.provideMerge(TestDatabase.layer))

const clear = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`TRUNCATE outbox_tasks, operator_audit CASCADE`)

const operator = { actor: "ann", reason: "a test" }

layer(services, { excludeTestServices: true })("Tasks", (it) => {
  it.effect("a task exists once its transaction has committed", () =>
    Effect.gen(function* () {
      yield* clear
      const { isNew, taskId } = yield* enqueue(plain, { number: 1 })
      assert.isTrue(isNew)
      const view = yield* (yield* Tasks).get(taskId)
      assert.deepInclude(view, {
        taskId,
        type: "plain",
        state: "pending",
        attempts: 0,
        lastError: null,
        finishedAt: null
      })
      assert.strictEqual(view.executeAt, view.enqueuedAt)
    })
  )

  it.effect("a task of a rolled-back transaction does not exist", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      yield* Effect.flip(
        Transaction.run(Effect.andThen(tasks.enqueue(plain, { number: 1 }), Effect.fail("changed my mind")))
      )
      assert.deepStrictEqual(yield* rows, [])
    })
  )

  it.effect("a key stands for one task of its type, and the second asker gets the first one's id", () =>
    Effect.gen(function* () {
      yield* clear
      const first = yield* enqueue(plain, { number: 1 }, { idempotencyKey: "a" })
      const second = yield* enqueue(plain, { number: 2 }, { idempotencyKey: "a" })
      const other = yield* enqueue(taskType("other"), { number: 3 }, { idempotencyKey: "a" })
      assert.deepStrictEqual(second, { taskId: first.taskId, isNew: false })
      assert.isTrue(other.isNew)
      assert.deepStrictEqual(
        (yield* rows).map((row) => row.number),
        [1, 3]
      )
    })
  )

  it.effect("the loser of a race for a key waits for the winner, and gets its task's id", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      const written = yield* Deferred.make<void>()
      const commit = yield* Deferred.make<void>()
      const keyed = tasks.enqueue(plain, { number: 1 }, { idempotencyKey: "a" })
      const winner = yield* Effect.forkChild(
        Transaction.run(
          Effect.tap(keyed, () => Effect.andThen(Deferred.succeed(written, undefined), Deferred.await(commit)))
        )
      )
      yield* Deferred.await(written)
      const losers = yield* Effect.forkChild(
        Effect.all(
          Array.from({ length: 4 }, () => Transaction.run(keyed)),
          { concurrency: "unbounded" }
        )
      )
      yield* waiting(4)
      yield* Deferred.succeed(commit, undefined)
      const { isNew, taskId } = yield* Fiber.join(winner)
      assert.isTrue(isNew)
      assert.deepStrictEqual(
        yield* Fiber.join(losers),
        Array.from({ length: 4 }, () => ({ taskId, isNew: false }))
      )
    })
  )

  it.effect("a payload that is not its type's is a defect, and nothing is written", () =>
    Effect.gen(function* () {
      yield* clear
      for (const [payload, options] of [
        [{ number: "one" as never }, {}],
        [{ number: Number.NaN }, {}],
        [{ number: 1 }, { priority: 6 }],
        [{ number: 1 }, { delayMillis: -1 }],
        [{ number: 1 }, { executeAt: "infinity" }],
        [{ number: 1 }, { executeAt: "tomorrow" }]
      ] as const) {
        const exit = yield* Effect.exit(enqueue(plain, payload, options))
        assert.strictEqual(exit._tag, "Failure")
      }
      assert.deepStrictEqual(yield* rows, [])
    })
  )

  it.effect("a task that is no longer needed is completed with the surrounding commit", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      const { taskId } = yield* enqueue(plain, { number: 1 }, { idempotencyKey: "a", delayMillis: 5_000 })
      yield* Effect.flip(Transaction.run(Effect.andThen(tasks.settle(taskId), Effect.fail("not yet"))))
      assert.strictEqual((yield* tasks.get(taskId)).state, "pending")
      assert.isTrue(yield* Transaction.run(tasks.settleByKey(plain, "a")))
      assert.strictEqual((yield* tasks.get(taskId)).state, "completed")
      assert.isFalse(yield* Transaction.run(tasks.settle(taskId)))
    })
  )

  it.effect("a task that is hastened is due now", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      yield* enqueue(plain, { number: 1 }, { idempotencyKey: "a", delayMillis: 60_000 })
      assert.isAbove((yield* rows)[0]!.dueSeconds, 50)
      yield* Transaction.run(tasks.hastenByKey(plain, "a"))
      assert.isAtMost((yield* rows)[0]!.dueSeconds, 0)
    })
  )

  it.effect("an operator cancels a waiting task and retries it; both are audited", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      const sql = yield* SqlClient.SqlClient
      const { taskId } = yield* enqueue(plain, { number: 1 })
      assert.deepStrictEqual(yield* tasks.cancel(taskId, operator), { taskId, state: "cancelled", changed: true })
      assert.deepStrictEqual(yield* tasks.cancel(taskId, operator), { taskId, state: "cancelled", changed: false })
      assert.deepStrictEqual(yield* tasks.retry(taskId, operator), { taskId, state: "pending", changed: true })
      assert.deepStrictEqual(yield* tasks.retry(taskId, operator), { taskId, state: "pending", changed: false })
      yield* Transaction.run(tasks.settle(taskId))
      assert.deepStrictEqual(yield* tasks.retry(taskId, operator), { taskId, state: "completed", changed: false })
      assert.strictEqual((yield* Effect.flip(tasks.cancel(taskId, operator)))._tag, "TaskNotPossible")
      const unknown = TaskId.make("01890a5d-ac96-774b-bcce-b302099a8057")
      assert.strictEqual((yield* Effect.flip(tasks.cancel(unknown, operator)))._tag, "TaskNotFound")
      assert.strictEqual((yield* Effect.flip(tasks.get(unknown)))._tag, "TaskNotFound")
      assert.deepStrictEqual(
        yield* sql`SELECT actor, action, reason, subject, subject_id, before ->> 'state' AS before, after ->> 'state' AS after
                   FROM operator_audit ORDER BY audit_id`,
        [
          { ...operator, action: "cancel", subject: "task", subject_id: taskId, before: "pending", after: "cancelled" },
          { ...operator, action: "retry", subject: "task", subject_id: taskId, before: "cancelled", after: "pending" }
        ]
      )
    })
  )
})

/** Waits until that many sessions of this database wait for another transaction. */
const waiting = (count: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly count: number }>`
      SELECT count(*)::int4 AS count FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`
    return row!.count
  }).pipe(Effect.repeat({ until: (found) => found >= count }))
