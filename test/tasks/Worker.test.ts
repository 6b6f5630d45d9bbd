/** The worker's steps, one at a time, on a clock that the test sets. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Result } from "effect"
import { SqlClient, Statement } from "effect/sql"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskType } from "../../src/tasks/TaskType.ts"
import { TaskLeases } from "../../src/tasks/TaskLeases.ts"
import * as TaskWorker from "../../src/tasks/TaskWorker.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { linesOf } from "../support/LogLines.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { advance, enqueue, enqueuer, install, plain, rows, settings, steps, taskType } from "./Support.ts"

const minute = 60_000
const delays = [minute, 5 * minute]

/** The settable clock, and a table that tasks write to. */
const prepared = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* install
    yield* sql`CREATE TABLE effects (number float8 PRIMARY KEY)`
  })
)

const services = Layer.merge(steps, prepared).pipe(
  Layer.provideMerge(enqueuer),
  Layer.provideMerge(settings({ retryDelaysMillis: delays })),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const clear = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`TRUNCATE outbox_tasks, operator_audit, effects CASCADE`)

/** A worker that records the numbers that it has run. */
const recorder = (type: TaskType<{ readonly number: number }> = plain, ran: Array<number> = []) => ({
  ran,
  handler: TaskHandler.make(type, ({ payload }) => Effect.sync(() => void ran.push(payload.number)))
})

/** A row that a task writes with its end. */
const effect = (number: number) => Effect.flatMap(Transaction, ({ sql }) => sql`INSERT INTO effects VALUES (${number})`)

const effects = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return (yield* sql<{ readonly number: number }>`SELECT number FROM effects ORDER BY number`).map((row) => row.number)
})

const only = Effect.map(rows, (all) => {
  assert.strictEqual(all.length, 1)
  return all[0]!
})

layer(services, { excludeTestServices: true })("TaskWorker", (it) => {
  it.effect("a task is run once, with its id and payload", () =>
    Effect.gen(function* () {
      yield* clear
      const seen: Array<unknown> = []
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ attempt, isLastAttempt, payload, taskId }) =>
          Effect.sync(() => void seen.push({ attempt, isLastAttempt, payload, taskId }))
        )
      ])
      const { taskId } = yield* enqueue(plain, { number: 7 })
      assert.strictEqual(yield* worker.runOnce, 1)
      assert.strictEqual(yield* worker.runOnce, 0)
      assert.deepStrictEqual(seen, [{ attempt: 1, isLastAttempt: false, payload: { number: 7 }, taskId }])
      assert.deepInclude(yield* only, { state: "completed", attempts: 1, lastError: null })
    })
  )

  it.effect("runs that ended in every way are written together, whatever their waits are", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ payload }) =>
          payload.number === 0
            ? Effect.void
            : payload.number === 1
              ? Effect.fail(new TaskHandler.TaskRefused({ reason: "never" }))
              : Effect.fail(
                  new TaskHandler.RetryAfter({
                    delayMillis: [0.5, 1_000, 5_000_000_000][payload.number - 2]!,
                    reason: "later"
                  })
                )
        )
      ])
      for (const number of [0, 1, 2, 3, 4]) yield* enqueue(plain, { number })
      const { tasks } = yield* worker.claimOnce
      yield* worker.finishOnce(
        yield* Effect.forEach(tasks, (task) => Effect.map(worker.execute(task), (result) => ({ task, result })))
      )
      assert.deepStrictEqual(
        (yield* rows).map(({ state }) => state),
        ["completed", "dead", "failed", "failed", "failed"]
      )
    })
  )

  it.effect("due tasks come by priority, then what was due first, then in order", () =>
    Effect.gen(function* () {
      yield* clear
      const { handler, ran } = recorder()
      const worker = yield* TaskWorker.make([handler])
      const at = new Date(Date.UTC(2000, 0, 1)).toISOString()
      yield* enqueue(plain, { number: 5 })
      yield* enqueue(plain, { number: 3 }, { executeAt: at, priority: 0 })
      yield* enqueue(plain, { number: 4 }, { executeAt: at, priority: 0 })
      yield* enqueue(plain, { number: 6 }, { priority: -5, executeAt: at })
      yield* enqueue(plain, { number: 2 }, { priority: 1 })
      yield* enqueue(plain, { number: 1 }, { priority: 5 })
      yield* enqueue(plain, { number: 9 }, { priority: 5, delayMillis: 60_000 })
      yield* worker.runOnce
      assert.deepStrictEqual(ran, [1, 2, 3, 4, 5, 6])
      yield* advance("1 minute")
      yield* worker.runOnce
      assert.deepStrictEqual(ran, [1, 2, 3, 4, 5, 6, 9])
    })
  )

  it.effect("a type takes no more than its limit, and leaves the other types theirs", () =>
    Effect.gen(function* () {
      yield* clear
      const slow = taskType("slow", { concurrency: 2 })
      const worker = yield* TaskWorker.make([recorder(slow).handler, recorder().handler])
      for (let number = 0; number < 5; number++) yield* enqueue(slow, { number }, { priority: 5 })
      yield* enqueue(plain, { number: 9 })
      const first = yield* worker.claimOnce
      assert.deepStrictEqual(first.tasks.map(({ typeName }) => typeName).toSorted(), ["plain", "slow", "slow"])
      assert.isTrue(first.more)
      // The slow type has no free run, so none of its tasks is claimed; the other type goes on.
      yield* enqueue(plain, { number: 10 })
      const second = yield* worker.claimOnce
      assert.deepStrictEqual(
        second.tasks.map(({ typeName }) => typeName),
        ["plain"]
      )
      // This claim did not ask for slow tasks, and still reports that there are more of them.
      assert.isTrue(second.more)
      const task = first.tasks.find(({ typeName }) => typeName === "slow")
      yield* worker.finishOnce([{ task: task!, result: yield* worker.execute(task!) }])
      assert.deepStrictEqual(
        (yield* worker.claimOnce).tasks.map(({ typeName }) => typeName),
        ["slow"]
      )
    })
  )

  it.effect("of an ordering key one runs at a time, in order, and a failed one holds the others up", () =>
    Effect.gen(function* () {
      yield* clear
      const ran: Array<number> = []
      let fails = true
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ payload }) =>
          Effect.suspend(() => {
            ran.push(payload.number)
            return payload.number === 1 && fails ? Effect.fail("not yet") : Effect.void
          })
        )
      ])
      for (const number of [1, 2, 3]) yield* enqueue(plain, { number }, { orderingKey: "k", priority: number })
      yield* enqueue(plain, { number: 4 }, { orderingKey: "other" })
      assert.strictEqual(yield* worker.runOnce, 2)
      assert.deepStrictEqual(new Set(ran), new Set([1, 4]))
      assert.strictEqual(yield* worker.runOnce, 0)
      fails = false
      yield* advance("2 minutes")
      for (let step = 0; step < 3; step++) assert.strictEqual(yield* worker.runOnce, 1)
      assert.deepStrictEqual(ran.slice(2), [1, 2, 3])
    })
  )

  it.effect("a dead or cancelled task does not hold its key up", () =>
    Effect.gen(function* () {
      yield* clear
      const ran: Array<number> = []
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ payload }) =>
          payload.number === 1
            ? Effect.fail(new TaskHandler.TaskRefused({ reason: "never" }))
            : Effect.sync(() => void ran.push(payload.number))
        )
      ])
      yield* enqueue(plain, { number: 1 }, { orderingKey: "k" })
      const second = yield* enqueue(plain, { number: 2 }, { orderingKey: "k" })
      yield* enqueue(plain, { number: 3 }, { orderingKey: "k" })
      yield* worker.runOnce
      yield* (yield* Tasks).cancel(second.taskId, { actor: "ann", reason: "a test" })
      yield* worker.runOnce
      assert.deepStrictEqual(ran, [3])
    })
  )

  it.effect("an earlier task of a key that commits late still does not run beside a later one", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      const worker = yield* TaskWorker.make([recorder().handler])
      const written = yield* Deferred.make<void>()
      const commit = yield* Deferred.make<void>()
      const late = yield* Effect.forkChild(
        Transaction.run(
          tasks
            .enqueue(plain, { number: 1 }, { orderingKey: "k" })
            .pipe(Effect.andThen(Deferred.succeed(written, undefined)), Effect.andThen(Deferred.await(commit)))
        )
      )
      yield* Deferred.await(written)
      yield* enqueue(plain, { number: 2 }, { orderingKey: "k" })
      const [second] = (yield* worker.claimOnce).tasks
      yield* Deferred.succeed(commit, undefined)
      yield* Fiber.join(late)
      assert.deepStrictEqual((yield* worker.claimOnce).tasks, [])
      // The two claims do not see each other, and the table's constraint refuses the second one.
      const sql = yield* SqlClient.SqlClient
      const refused = yield* Effect.result(
        sql`UPDATE outbox_tasks SET state = 'processing', attempts = 1, lease_until = clock_now() WHERE state = 'pending'`
      )
      assert.strictEqual(Result.isFailure(refused) && refused.failure.reason._tag, "UniqueViolation")
      yield* worker.finishOnce([{ task: second!, result: yield* worker.execute(second!) }])
      assert.strictEqual(yield* worker.runOnce, 1)
    })
  )

  it.effect("two workers that claim at once never get the same task", () =>
    Effect.gen(function* () {
      yield* clear
      const wide = taskType("wide", { concurrency: 40 })
      for (let number = 0; number < 100; number++) {
        yield* enqueue(wide, { number }, { orderingKey: number % 2 === 0 ? undefined : String(number % 7) })
      }
      const workers = yield* Effect.forEach([1, 2, 3, 4], () => TaskWorker.make([recorder(wide).handler]))
      const claimed = yield* Effect.forEach(workers, (worker) => worker.claimOnce, { concurrency: "unbounded" })
      const ids = claimed.flatMap(({ tasks }) => tasks.map(({ taskId }) => taskId))
      assert.strictEqual(new Set(ids).size, ids.length)
      const sql = yield* SqlClient.SqlClient
      const keys = yield* sql<{ readonly count: number }>`
        SELECT count(*)::int4 AS count FROM outbox_tasks WHERE state = 'processing' AND ordering_key IS NOT NULL GROUP BY ordering_key`
      assert.isTrue(keys.every(({ count }) => count === 1))
    })
  )

  it.effect("a task fails by its schedule, with jitter, and is dead after one run more than waits", () =>
    Effect.gen(function* () {
      yield* clear
      const last: Array<boolean> = []
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ isLastAttempt }) =>
          Effect.suspend(() => {
            last.push(isLastAttempt)
            return Effect.fail(new Error(`failure ${last.length}`))
          })
        )
      ])
      const { taskId } = yield* enqueue(plain, { number: 1 })
      for (const [index, delay] of delays.entries()) {
        assert.strictEqual(yield* worker.runOnce, 1)
        const row = yield* only
        assert.deepInclude(row, { state: "failed", attempts: index + 1, lastError: `Error: failure ${index + 1}` })
        assert.isAtLeast(row.dueSeconds, (delay / 1_000) * 0.8 - 5)
        assert.isAtMost(row.dueSeconds, (delay / 1_000) * 1.2)
        assert.strictEqual(yield* worker.runOnce, 0)
        yield* advance(`${delay * 1.2} milliseconds`)
      }
      assert.strictEqual(yield* worker.runOnce, 1)
      const view = yield* (yield* Tasks).get(taskId)
      assert.deepInclude(view, { state: "dead", attempts: 3, lastError: "Error: failure 3" })
      assert.deepStrictEqual(
        view.history.map(({ attempt, error }) => ({ attempt, error })),
        [1, 2, 3].map((attempt) => ({ attempt, error: `Error: failure ${attempt}` }))
      )
      assert.deepStrictEqual(last, [false, false, true])
      yield* advance("10 days")
      assert.strictEqual(yield* worker.runOnce, 0)
      // An operator resets its runs.
      yield* (yield* Tasks).retry(taskId, { actor: "ann", reason: "mended" })
      assert.strictEqual(yield* worker.runOnce, 1)
      assert.deepInclude(yield* only, { state: "failed", attempts: 1 })
    })
  )

  it.effect("a type's own schedule goes before the setting's", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([
        TaskHandler.make(taskType("plain", { retryDelaysMillis: [] }), () => Effect.fail("no"))
      ])
      yield* enqueue(plain, { number: 1 })
      yield* worker.runOnce
      assert.deepInclude(yield* only, { state: "dead", attempts: 1, lastError: "no" })
    })
  )

  it.effect("a handler may refuse its task, or say when to try again", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ payload }) =>
          payload.number === 1
            ? Effect.fail(new TaskHandler.TaskRefused({ reason: "no such address" }))
            : Effect.fail(new TaskHandler.RetryAfter({ delayMillis: 7_000, reason: "too many" }))
        )
      ])
      yield* enqueue(plain, { number: 1 })
      yield* enqueue(plain, { number: 2 })
      yield* worker.runOnce
      const [refused, later] = yield* rows
      assert.deepInclude(refused, { state: "dead", attempts: 1 })
      assert.include(refused!.lastError ?? "", "no such address")
      assert.deepInclude(later, { state: "failed", attempts: 1 })
      assert.isAtMost(later!.dueSeconds, 7)
      assert.isAtLeast(later!.dueSeconds, 2)
    })
  )

  it.effect("defects, self-interruption and time-outs are failed runs, and the worker goes on", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([
        TaskHandler.make(taskType("plain", { timeoutMillis: 20 }), ({ payload }) => {
          if (payload.number === 1) throw new Error("thrown\u0000")
          return payload.number === 2 ? Effect.die("died") : payload.number === 3 ? Effect.interrupt : Effect.never
        })
      ])
      for (const number of [1, 2, 3, 4]) yield* enqueue(plain, { number })
      assert.strictEqual(yield* worker.runOnce, 4)
      assert.deepStrictEqual(
        (yield* rows).map(({ lastError, state }) => [state, lastError]),
        [
          ["failed", "Error: thrown"],
          ["failed", "died"],
          ["failed", "the handler interrupted itself"],
          ["failed", "TaskTimedOut: the handler was not done after 20 ms"]
        ]
      )
      assert.strictEqual(worker.free("plain"), 10)
    })
  )

  it.effect("whatever a handler fails with, its run ends, and the error is stored as text", () =>
    Effect.gen(function* () {
      yield* clear
      const circular: Record<string, unknown> = { name: "circular" }
      circular["self"] = circular
      const errors = [{ code: 7 }, { amountMinor: 100n }, circular, Object.create(null), undefined, Symbol("none")]
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ payload }) => Effect.fail(errors[payload.number]))
      ])
      for (const number of errors.keys()) yield* enqueue(plain, { number })
      assert.strictEqual(yield* worker.runOnce, errors.length)
      assert.deepStrictEqual(
        (yield* rows).map(({ lastError, state }) => [state, lastError]),
        [
          ["failed", `{"code":7}`],
          ["failed", `{"amountMinor":100n}`],
          ["failed", `{"name":"circular","self":[Circular]}`],
          ["failed", "{}"],
          ["failed", "undefined"],
          ["failed", "Symbol(none)"]
        ]
      )
      assert.strictEqual(worker.free("plain"), 10)
    })
  )

  it.effect("a payload that its type can't read is dead at once, and says so", () =>
    Effect.gen(function* () {
      yield* clear
      const sql = yield* SqlClient.SqlClient
      const { handler, ran } = recorder()
      const worker = yield* TaskWorker.make([handler])
      yield* enqueue(plain, { number: 1 })
      yield* sql`UPDATE outbox_tasks SET payload = '{"number": null}'`
      yield* worker.runOnce
      const row = yield* only
      assert.deepInclude(row, { state: "dead", attempts: 1 })
      assert.include(row.lastError ?? "", "its payload is none of plain")
      assert.deepStrictEqual(ran, [])
    })
  )

  it.effect("two handlers for one type are refused with a sentence", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(TaskWorker.make([recorder().handler, recorder().handler]))
      assert.strictEqual(error.message, 'tasks of type "plain" have two handlers: one of them must go')
    })
  )

  it.effect("a worker that dies right after its claim is recovered, and the run counts", () =>
    Effect.gen(function* () {
      yield* clear
      const dead = yield* TaskWorker.make([recorder().handler])
      const { handler, ran } = recorder()
      const heir = yield* TaskWorker.make([handler])
      yield* enqueue(plain, { number: 1 })
      assert.strictEqual((yield* dead.claimOnce).tasks.length, 1)
      yield* advance("30 seconds")
      assert.strictEqual(yield* heir.recoverOnce, 0)
      yield* advance("30 seconds")
      assert.strictEqual(yield* heir.recoverOnce, 1)
      const row = yield* only
      assert.deepInclude(row, { state: "failed", attempts: 1 })
      assert.match(row.lastError ?? "", /^the worker \d+:\w+ was lost: its lease ran out$/)
      assert.isAbove(row.dueSeconds, 60 * 0.8 - 5)
      yield* advance("2 minutes")
      yield* heir.runOnce
      assert.deepStrictEqual(ran, [1])
      assert.deepInclude(yield* only, { state: "completed", attempts: 2 })
    })
  )

  it.effect(
    "a lease that is renewed, or a run that ends, while another worker takes expired leases back is not lost",
    () =>
      Effect.gen(function* () {
        for (const meanwhile of ["renewed", "ended"] as const) {
          yield* clear
          const worker = yield* TaskWorker.make([recorder().handler])
          const other = yield* TaskWorker.make([recorder().handler])
          yield* enqueue(plain, { number: 1 })
          const [task] = (yield* worker.claimOnce).tasks
          yield* advance("1 minute")
          const intervene =
            meanwhile === "renewed"
              ? worker.heartbeatOnce
              : Effect.flatMap(worker.execute(task!), (result) => worker.finishOnce([{ task: task!, result }]))
          const client = yield* PgClient.PgClient
          let seen = 0
          const recovered = yield* other.recoverOnce.pipe(
            Effect.provideService(Statement.CurrentTransformer, (statement) => {
              // Between the statement that reads the expired leases and the one that takes them back.
              const isSecond = statement.compile()[0].includes("WITH expired")
              if (isSecond) seen++
              return isSecond
                ? intervene.pipe(
                    Effect.provideService(Statement.CurrentTransformer, undefined),
                    Effect.provideService(PgClient.PgClient, client),
                    Effect.as(statement)
                  )
                : Effect.succeed(statement)
            })
          )
          assert.strictEqual(seen, 1)
          assert.strictEqual(recovered, 0, meanwhile)
          assert.deepInclude(yield* only, { state: meanwhile === "renewed" ? "processing" : "completed", attempts: 1 })
          if (meanwhile === "renewed") yield* worker.finishOnce([{ task: task!, result: yield* worker.execute(task!) }])
        }
      })
  )

  it.effect("a task that kills its worker each time dies", () =>
    Effect.gen(function* () {
      yield* clear
      yield* enqueue(plain, { number: 1 })
      for (let run = 0; run <= delays.length; run++) {
        const victim = yield* TaskWorker.make([recorder().handler])
        assert.strictEqual((yield* victim.claimOnce).tasks.length, 1)
        yield* advance("1 minute")
        const lines = yield* linesOf(Effect.map(victim.recoverOnce, (count) => assert.strictEqual(count, 1)))
        // A dead task waits for a person.
        assert.match(lines.join(), run === delays.length ? /^Error .* is dead now$/ : /^Warn .* is failed now$/)
        yield* advance("1 hour")
      }
      const row = yield* only
      assert.deepInclude(row, { state: "dead", attempts: 3 })
      assert.deepStrictEqual(
        row.history.map(({ attempt }) => attempt),
        [1, 2, 3]
      )
    })
  )

  it.effect("a late worker can't overwrite the new owner, and its finishing writes are rolled back", () =>
    Effect.gen(function* () {
      yield* clear
      const writer = TaskHandler.make(plain, ({ payload }) => Effect.succeed(effect(payload.number)))
      const late = yield* TaskWorker.make([writer])
      const owner = yield* TaskWorker.make([writer])
      yield* enqueue(plain, { number: 1 })
      const [stale] = (yield* late.claimOnce).tasks
      yield* advance("1 minute")
      yield* owner.recoverOnce
      // The task was given back, and has no owner.
      assert.strictEqual(yield* late.execute(stale!), "lost")
      assert.deepStrictEqual(yield* effects, [])
      yield* advance("2 minutes")
      const [fresh] = (yield* owner.claimOnce).tasks
      // The task has another owner.
      for (const outcome of ["completed", "failed", "dead", "released"] as const) {
        yield* late.finishOnce([{ task: stale!, result: { taskId: stale!.taskId, token: stale!.token, outcome } }])
        assert.deepInclude(yield* only, { state: "processing", attempts: 2 })
      }
      assert.strictEqual(yield* owner.execute(fresh!), "completed")
      assert.deepInclude(yield* only, { state: "completed", attempts: 2 })
      assert.deepStrictEqual(yield* effects, [1])
    })
  )

  it.effect("a task's finishing writes commit with its end, and their failure is a failed run", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, ({ payload }) =>
          // The second task finds the number in use.
          Effect.succeed(
            Effect.andThen(effect(payload.number), payload.number === 3 ? Effect.fail("changed my mind") : Effect.void)
          )
        )
      ])
      for (const number of [1, 1, 3]) yield* enqueue(plain, { number })
      yield* worker.runOnce
      assert.deepStrictEqual(
        (yield* rows).map(({ state }) => state),
        ["completed", "failed", "failed"]
      )
      assert.deepStrictEqual(yield* effects, [1])
    })
  )

  it.effect("a lease is renewed while its task runs, and one that is lost interrupts the handler", () =>
    Effect.gen(function* () {
      yield* clear
      const interrupted = yield* Deferred.make<void>()
      const worker = yield* TaskWorker.make([
        TaskHandler.make(plain, () => Effect.onInterrupt(Effect.never, () => Deferred.succeed(interrupted, undefined)))
      ])
      const other = yield* TaskWorker.make([recorder().handler])
      yield* enqueue(plain, { number: 1 })
      const [task] = (yield* worker.claimOnce).tasks
      const fiber = yield* Effect.forkChild(worker.execute(task!), { uninterruptible: true })
      worker.executedBy(task!, fiber)
      for (let beat = 0; beat < 5; beat++) {
        yield* advance("50 seconds")
        yield* worker.heartbeatOnce
        assert.strictEqual(yield* other.recoverOnce, 0)
      }
      yield* advance("61 seconds")
      assert.strictEqual(yield* other.recoverOnce, 1)
      yield* worker.heartbeatOnce
      yield* Deferred.await(interrupted)
      assert.strictEqual(yield* Fiber.join(fiber), "lost")
      assert.strictEqual((yield* only).state, "failed")
    })
  )

  it.effect(
    "a worker that can't reach Postgres interrupts its handlers when their leases have run out by its own clock",
    () =>
      Effect.gen(function* () {
        yield* clear
        const leases = yield* TaskLeases
        const worker = yield* TaskWorker.make([TaskHandler.make(plain, () => Effect.never)]).pipe(
          Effect.provideService(TaskLeases, { ...leases, renew: () => Effect.die("no database") }),
          Effect.provide(settings({ leaseMillis: 0 }))
        )
        yield* enqueue(plain, { number: 1 })
        const [task] = (yield* worker.claimOnce).tasks
        const fiber = yield* Effect.forkChild(worker.execute(task!), { uninterruptible: true })
        worker.executedBy(task!, fiber)
        assert.strictEqual((yield* Effect.exit(worker.heartbeatOnce))._tag, "Failure")
        assert.strictEqual(yield* Fiber.join(fiber), "lost")
      })
  )

  it.effect("a cancelled task that runs is interrupted with the next heartbeat, and ends cancelled", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([TaskHandler.make(plain, () => Effect.never)])
      const { taskId } = yield* enqueue(plain, { number: 1 })
      const [task] = (yield* worker.claimOnce).tasks
      const fiber = yield* Effect.forkChild(worker.execute(task!), { uninterruptible: true })
      worker.executedBy(task!, fiber)
      const handled = yield* (yield* Tasks).cancel(taskId, { actor: "ann", reason: "a test" })
      assert.deepStrictEqual(handled, { taskId, state: "processing", changed: true })
      yield* worker.heartbeatOnce
      yield* worker.finishOnce([{ task: task!, result: yield* Fiber.join(fiber) }])
      assert.deepInclude(yield* only, { state: "cancelled", attempts: 1 })
    })
  )

  it.effect("a cancelled task that fails, or whose worker dies, is cancelled and not tried again", () =>
    Effect.gen(function* () {
      yield* clear
      const tasks = yield* Tasks
      const worker = yield* TaskWorker.make([TaskHandler.make(plain, () => Effect.fail("no"))])
      const ids = [yield* enqueue(plain, { number: 1 }), yield* enqueue(plain, { number: 2 })]
      const [first] = (yield* worker.claimOnce).tasks
      for (const { taskId } of ids) yield* tasks.cancel(taskId, { actor: "ann", reason: "a test" })
      yield* worker.finishOnce([{ task: first!, result: yield* worker.execute(first!) }])
      yield* advance("1 minute")
      yield* worker.recoverOnce
      assert.deepStrictEqual(
        (yield* rows).map(({ state }) => state),
        ["cancelled", "cancelled"]
      )
    })
  )

  it.effect("a task that is given back was not run", () =>
    Effect.gen(function* () {
      yield* clear
      const worker = yield* TaskWorker.make([recorder().handler])
      yield* enqueue(plain, { number: 1 })
      const [task] = (yield* worker.claimOnce).tasks
      yield* worker.finishOnce([
        { task: task!, result: { taskId: task!.taskId, token: task!.token, outcome: "released" } }
      ])
      assert.deepInclude(yield* only, { state: "pending", attempts: 0, lastError: null, history: [] })
      assert.strictEqual(yield* worker.runOnce, 1)
    })
  )

  it.effect("a fault after a claim waits until a task is claimed", () =>
    Effect.gen(function* () {
      yield* clear
      const faulty = yield* TaskWorker.make([recorder().handler]).pipe(
        Effect.provide(FaultInjection.layer([["task.after-claim", { action: "fail", times: 1, delayMillis: 0 }]]))
      )
      assert.strictEqual(yield* faulty.runOnce, 0)
      yield* enqueue(plain, { number: 1 })
      assert.isTrue(Exit.isFailure(yield* Effect.exit(faulty.runOnce)))
    })
  )

  it.effect("a failure at any fault point of a run leaves a task that still completes", () =>
    Effect.gen(function* () {
      yield* clear
      for (const [number, point] of (
        ["task.after-claim", "task.during-run", "task.after-handler", "task.after-finish"] as const
      ).entries()) {
        const faulty = yield* TaskWorker.make([TaskHandler.make(plain, () => Effect.succeed(effect(number)))]).pipe(
          Effect.provide(FaultInjection.layer([[point, { action: "fail", times: 1, delayMillis: 0 }]]))
        )
        yield* enqueue(plain, { number })
        yield* Effect.exit(faulty.runOnce)
        yield* advance("1 hour")
        yield* faulty.recoverOnce
        yield* advance("1 hour")
        yield* Effect.exit(faulty.runOnce)
      }
      assert.deepStrictEqual(
        (yield* rows).map(({ state }) => state),
        ["completed", "completed", "completed", "completed"]
      )
      assert.deepStrictEqual(yield* effects, [0, 1, 2, 3])
    })
  )
})
