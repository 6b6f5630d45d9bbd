/** The order and the limits of a claim, and the fencing token of a renewal. */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TaskClaim } from "../../src/tasks/TaskClaim.ts"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import * as TaskWorker from "../../src/tasks/TaskWorker.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { advance, enqueue, enqueuer, install, plain, rows, settings, steps, taskType } from "./Support.ts"

const minute = 60_000

const services = Layer.merge(steps, Layer.effectDiscard(install)).pipe(
  Layer.provideMerge(enqueuer),
  Layer.provideMerge(settings({ leaseMillis: minute, retryDelaysMillis: [minute] })),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const clear = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`TRUNCATE outbox_tasks CASCADE`)

/** Claims `free` tasks of the type `plain`. Returns their numbers in the order of the claim. */
const claim = Effect.fnUntraced(function* (free: number) {
  const claims = yield* TaskClaim
  const claimed = yield* claims.claim([{ typeName: plain.name, free }], "a worker")
  return claimed.map(({ payload }) => (payload as { readonly number: number }).number)
})

const never = TaskHandler.make(plain, () => Effect.never)

layer(services, { excludeTestServices: true })("TaskClaim and TaskLeases", (it) => {
  it.effect("a type whose tasks have several priorities takes no more than its limit, the most urgent tasks", () =>
    Effect.gen(function* () {
      yield* clear
      for (const priority of [-5, 0, 5]) {
        for (const place of [1, 2]) yield* enqueue(plain, { number: 10 * priority + place }, { priority })
      }
      const worker = yield* TaskWorker.make([
        TaskHandler.make(taskType("plain", { concurrency: 3 }), () => Effect.void)
      ])
      const { tasks } = yield* worker.claimOnce
      assert.deepStrictEqual(
        tasks.map(({ payload }) => payload),
        [{ number: 51 }, { number: 52 }, { number: 1 }]
      )
      assert.strictEqual(worker.free(plain.name), 0)
    })
  )

  it.effect("each priority from -5 to 5 is claimed, the highest first", () =>
    Effect.gen(function* () {
      yield* clear
      const priorities = Array.from({ length: 11 }, (_, index) => index - 5)
      for (const priority of priorities) yield* enqueue(plain, { number: priority }, { priority })
      for (const priority of priorities.toReversed()) assert.deepStrictEqual(yield* claim(1), [priority])
      assert.deepStrictEqual(yield* claim(1), [])
    })
  )

  it.effect(
    "with room for one task, the claim takes the one due first, and of two due together the one enqueued first",
    () =>
      Effect.gen(function* () {
        yield* clear
        const at = (second: number) => ({ executeAt: new Date(Date.UTC(2000, 0, 1, 0, 0, second)).toISOString() })
        yield* enqueue(plain, { number: 4 }, at(2))
        yield* enqueue(plain, { number: 2 }, at(1))
        yield* enqueue(plain, { number: 3 }, at(1))
        yield* enqueue(plain, { number: 1 }, { ...at(3), priority: 1 })
        for (const number of [1, 2, 3, 4]) assert.deepStrictEqual(yield* claim(1), [number])
      })
  )

  it.effect(
    "nextDue names the first task that became due since the last question, or will, whatever its priority",
    () =>
      Effect.gen(function* () {
        yield* clear
        const { nextDue } = yield* TaskClaim
        yield* enqueue(taskType("other"), { number: 2 }, { delayMillis: minute })
        assert.isUndefined((yield* nextDue([plain.name])).millis)
        yield* enqueue(plain, { number: 1 })
        const first = yield* nextDue([plain.name])
        assert.isAtMost(first.millis!, 0)
        assert.isUndefined((yield* nextDue([plain.name], first.askedAt)).millis)
        yield* enqueue(plain, { number: 3 }, { delayMillis: 3 * minute, priority: 5 })
        yield* enqueue(plain, { number: 4 }, { delayMillis: 2 * minute, priority: -5 })
        const second = yield* nextDue([plain.name], first.askedAt)
        assert.isAtMost(second.millis!, 2 * minute)
        assert.isAbove(second.millis!, minute)
      })
  )

  it.effect("a late worker's heartbeat neither renews the next owner's lease nor keeps its own handler going", () =>
    Effect.gen(function* () {
      yield* clear
      const late = yield* TaskWorker.make([never])
      const owner = yield* TaskWorker.make([never])
      const third = yield* TaskWorker.make([never])
      yield* enqueue(plain, { number: 1 })
      const [stale] = (yield* late.claimOnce).tasks
      const run = yield* Effect.forkChild(late.execute(stale!), { uninterruptible: true })
      late.executedBy(stale!, run)
      // The late worker does not notice: its lease expires, and the owner gets the task.
      yield* advance("1 minute")
      assert.strictEqual(yield* owner.recoverOnce, 1)
      yield* advance("2 minutes")
      assert.strictEqual((yield* owner.claimOnce).tasks.length, 1)
      yield* advance("50 seconds")
      yield* late.heartbeatOnce
      // The owner's lease began a minute ago, and the owner has not renewed it.
      yield* advance("10 seconds")
      assert.strictEqual(yield* third.recoverOnce, 1)
      assert.strictEqual(yield* Fiber.join(run), "lost")
      assert.deepInclude((yield* rows)[0], { state: "dead", attempts: 2 })
    })
  )
})
