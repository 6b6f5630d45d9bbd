/** The worker's loops in a process: wake-ups, timers, batches, metrics, and a stop. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Metric, Queue, Scope, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskClaim } from "../../src/tasks/TaskClaim.ts"
import { TaskWorkers } from "../../src/tasks/TaskWorkers.ts"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { WakeupSettings } from "../../src/platform/Wakeups.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { advance, enqueue, enqueuer, install, plain, rows, settings, steps, taskType } from "./Support.ts"

/** The poll never runs here, so each task is found through a wake-up or a timer. */
const withoutPoll = { pollMillis: 600_000 }

/** A process that runs tasks, beside those that enqueue. */
const worker = <R>(...handlers: ReadonlyArray<TaskHandler.TaskHandler<R>>) =>
  TaskWorkers.layer(handlers).pipe(Layer.provide(steps), Layer.provideMerge(enqueuer))

const world = (changes: Parameters<typeof settings>[0] = {}) =>
  Layer.mergeAll(settings(changes), TestProcess.quiet).pipe(Layer.provideMerge(TestDatabase.layer))

/** Tasks that report their numbers as they run. */
const teller = Effect.map(Queue.unbounded<number>(), (queue) => ({
  told: Queue.take(queue),
  handler: TaskHandler.make(plain, ({ payload }) => Effect.asVoid(Queue.offer(queue, payload.number)))
}))

const states = Effect.map(rows, (all) => all.map(({ state }) => state))
const until = (what: string, ...expected: ReadonlyArray<string>) =>
  eventually(
    what,
    Effect.map(states, (found) => found.join() === expected.join())
  )

describe("TaskWorkers", () => {
  it.live("the commit of an enqueue in the same process starts its task", () =>
    Effect.gen(function* () {
      const { handler, told } = yield* teller
      const context = yield* Layer.build(worker(handler))
      // The first claim at the start may find the first task.
      for (const number of [1, 2, 3]) {
        yield* enqueue(plain, { number }).pipe(Effect.provideContext(context))
        assert.strictEqual(yield* told, number)
      }
      yield* until("the tasks' end", "completed", "completed", "completed").pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world(withoutPoll)))
  )

  it.live("the commit of an enqueue in another process starts its task", () =>
    Effect.gen(function* () {
      const { handler, told } = yield* teller
      const here = yield* Layer.build(worker(handler))
      const elsewhere = yield* Layer.build(enqueuer)
      // A wake-up that is sent before the worker listens, or by a process without a session, is lost.
      for (const context of [here, elsewhere]) {
        const { session } = Context.get(context, ControlConnection)
        yield* eventually(
          "a control session",
          Effect.map(SubscriptionRef.get(session), (found) => found !== undefined)
        )
      }
      // The first claim may find the first task without a wake-up; the second task needs one.
      for (const number of [1, 2]) {
        yield* enqueue(plain, { number }).pipe(Effect.provideContext(elsewhere))
        assert.strictEqual(yield* told, number)
      }
    }).pipe(Effect.provide(world(withoutPoll)))
  )

  it.live("without any wake-up the poll finds the task", () =>
    Effect.gen(function* () {
      const { handler, told } = yield* teller
      yield* Layer.build(worker(handler))
      const elsewhere = yield* Layer.build(enqueuer)
      for (const number of [1, 2]) {
        yield* enqueue(plain, { number }).pipe(Effect.provideContext(elsewhere))
        assert.strictEqual(yield* told, number)
      }
    }).pipe(Effect.provide(world({ pollMillis: 50 })), Effect.provideService(WakeupSettings, { crossProcess: false }))
  )

  it.live("a timer starts a task when it is due, and not before", () =>
    Effect.gen(function* () {
      const { handler, told } = yield* teller
      const context = yield* Layer.build(worker(handler))
      yield* Effect.gen(function* () {
        yield* enqueue(plain, { number: 2 }, { delayMillis: 400 })
        yield* enqueue(plain, { number: 1 })
        // Usually in this order: a machine may stand still for longer than the second task waits.
        assert.sameMembers([yield* told, yield* told], [1, 2])
        const sql = yield* SqlClient.SqlClient
        const [row] = yield* sql<{
          readonly early: number
        }>`SELECT count(*)::int4 AS early FROM outbox_tasks WHERE finished_at < execute_at`
        assert.strictEqual(row!.early, 0)
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world(withoutPoll)))
  )

  it.live("a task that becomes due between a claim and the question for the next due one runs without a poll", () =>
    Effect.gen(function* () {
      const { handler, told } = yield* teller
      const context = yield* Layer.build(Layer.provideMerge(steps, enqueuer))
      yield* Effect.gen(function* () {
        yield* install
        yield* enqueue(plain, { number: 1 }, { delayMillis: 3_600_000 })
        const claims = yield* TaskClaim
        // Each question comes an hour late: the task is due by the first one.
        const late = TaskClaim.of({
          claim: claims.claim,
          nextDue: (...question) =>
            advance("1 hour").pipe(
              Effect.orDie,
              Effect.andThen(claims.nextDue(...question)),
              Effect.provideContext(context)
            )
        })
        yield* Layer.build(TaskWorkers.layer([handler])).pipe(Effect.provideService(TaskClaim, late))
        assert.strictEqual(yield* told, 1)
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world(withoutPoll)))
  )

  for (const [what, orderingKey] of [
    ["more tasks than there is room for", undefined],
    ["the tasks of an ordering key", "line"]
  ] as const)
    it.live(`${what} are all run, each once, without a poll`, () =>
      Effect.gen(function* () {
        const { handler, told } = yield* teller
        const context = yield* Layer.build(enqueuer)
        yield* Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          for (let number = 0; number < 30; number++) yield* enqueue(plain, { number }, { orderingKey })
          yield* Layer.build(worker(handler))
          const numbers = new Set<number>()
          for (let count = 0; count < 30; count++) numbers.add(yield* told)
          assert.strictEqual(numbers.size, 30)
          yield* eventually(
            "all ends",
            Effect.map(states, (all) => all.every((state) => state === "completed"))
          )
          const [row] = yield* sql<{ readonly attempts: number }>`SELECT max(attempts) AS attempts FROM outbox_tasks`
          assert.strictEqual(row!.attempts, 1)
        }).pipe(Effect.provideContext(context))
      }).pipe(Effect.provide(world(withoutPoll)))
    )

  it.live("a stop lets tasks end, and gives the others back without counting the run", () =>
    Effect.gen(function* () {
      const started = yield* Queue.unbounded<number>()
      const mayEnd = yield* Deferred.make<void>()
      const handler = TaskHandler.make(plain, ({ payload }) =>
        Effect.andThen(
          Queue.offer(started, payload.number),
          payload.number === 1 ? Deferred.await(mayEnd) : Effect.never
        )
      )
      const context = yield* Layer.build(enqueuer)
      yield* Effect.gen(function* () {
        const scope = yield* Scope.make()
        yield* Layer.buildWithScope(worker(handler), scope)
        yield* enqueue(plain, { number: 1 })
        yield* enqueue(plain, { number: 2 })
        yield* Queue.takeN(started, 2)
        const stopped = yield* Effect.forkChild(Scope.close(scope, Exit.void))
        yield* Deferred.succeed(mayEnd, undefined)
        yield* eventually(
          "the first one's end",
          Effect.map(states, ([first]) => first === "completed")
        )
        // No new task begins meanwhile.
        yield* enqueue(plain, { number: 3 })
        yield* Fiber.join(stopped)
        assert.deepStrictEqual(yield* states, ["completed", "pending", "pending"])
        assert.deepStrictEqual(
          (yield* rows).map(({ attempts }) => attempts),
          [1, 0, 0]
        )
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world({ ...withoutPoll, graceMillis: 500 })))
  )

  it.live("a task of a type that no worker handles stays, is counted, and is marked", () =>
    Effect.gen(function* () {
      const { handler } = yield* teller
      const context = yield* Layer.build(enqueuer)
      yield* Effect.gen(function* () {
        yield* install
        const { taskId } = yield* enqueue(taskType("stranger"), { number: 1 })
        yield* advance("10 seconds")
        yield* Layer.build(worker(handler))
        const tasks = yield* Tasks
        yield* eventually(
          "the note",
          Effect.map(tasks.get(taskId), ({ lastError }) => lastError !== null)
        )
        assert.deepInclude(yield* tasks.get(taskId), {
          state: "pending",
          attempts: 0,
          lastError: 'NoHandler: no worker handles tasks of type "stranger"'
        })
        assert.strictEqual(yield* gauge("outbox_tasks_pending", "stranger"), 1)
        assert.strictEqual(yield* gauge("outbox_tasks_pending", "stranger", "failed"), 0)
        assert.strictEqual(yield* gauge("outbox_tasks_pending", "plain"), 0)
        assert.strictEqual(yield* gauge("outbox_tasks_dead", "plain"), 0)
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world()))
  )

  it.live("a worker that handles the type later runs the task, and its error is gone", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(enqueuer)
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* enqueue(plain, { number: 1 })
        yield* sql`UPDATE outbox_tasks SET last_error = 'NoHandler: nobody'`
        const { handler } = yield* teller
        yield* Layer.build(worker(handler))
        yield* until("the task's end", "completed")
        assert.strictEqual((yield* rows)[0]!.lastError, null)
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world()))
  )

  it.live("each loop is a supervised fiber, and two handlers for one type refuse the start", () =>
    Effect.gen(function* () {
      const { handler } = yield* teller
      const context = yield* Layer.build(enqueuer)
      yield* Effect.gen(function* () {
        const refused = yield* Effect.flip(
          Effect.scoped(Layer.build(TaskWorkers.layer([handler, handler]).pipe(Layer.provide(steps))))
        )
        assert.strictEqual(refused._tag, "HandlerTwice")
        yield* Layer.build(TaskWorkers.layer([handler]).pipe(Layer.provide(steps)))
        const fibers = yield* Fibers
        assert.includeMembers(
          (yield* fibers.states).map(({ name }) => name),
          ["task claims", "task ends", "task heartbeats", "task sweep", "task metrics"]
        )
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.provide(world()))
  )
})

/** A gauge's value for a type, and a state where it has one. */
const gauge = Effect.fnUntraced(function* (id: string, typeName: string, state = "pending") {
  const found = (yield* Metric.snapshot).find(
    ({ attributes = {}, id: found }) =>
      found === id && attributes["task_type"] === typeName && (attributes["state"] ?? state) === state
  )
  return (found?.state as { readonly value: number } | undefined)?.value
})
