/** Each loop beside the claims repeats its step: heartbeats, the sweep, the samples, and maintenance. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Metric } from "effect"
import { SqlClient } from "effect/sql"
import { isDeepStrictEqual } from "node:util"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import * as TaskMetrics from "../../src/tasks/TaskMetrics.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskWorkers } from "../../src/tasks/TaskWorkers.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Ticking from "../support/Ticking.ts"
import { advance, enqueue, enqueuer, install, plain, rows, settings, steps } from "./Support.ts"

const services = Layer.effectDiscard(install).pipe(
  Layer.provideMerge(enqueuer),
  Layer.provideMerge(settings({ heartbeatMillis: 200, leaseMillis: 60_000, graceMillis: 0 })),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** Whether the SQL condition holds for the only task. */
const isTrue = Effect.fnUntraced(function* (condition: string) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly holds: boolean }>`SELECT ${sql.literal(condition)} AS holds FROM outbox_tasks`
  return row?.holds === true
})

it.live("the lease of a task that runs for long is renewed again and again", () =>
  Effect.gen(function* () {
    const started = yield* Deferred.make<void>()
    const handler = TaskHandler.make(plain, () => Effect.andThen(Deferred.succeed(started, undefined), Effect.never))
    yield* Layer.build(TaskWorkers.layer([handler]).pipe(Layer.provide(steps)))
    yield* enqueue(plain, { number: 1 })
    yield* Deferred.await(started)
    for (const beat of [1, 2, 3]) {
      yield* advance("50 seconds")
      yield* eventually(`heartbeat ${beat}`, isTrue("lease_until > clock_now() + interval '40 seconds'"))
    }
    assert.deepInclude((yield* rows)[0], { state: "processing", attempts: 1 })
  }).pipe(Effect.scoped, Effect.provide(services))
)

it.live("a task whose worker was lost is taken back, and so is the next", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const number of [1, 2]) {
      yield* sql`TRUNCATE outbox_tasks CASCADE`
      yield* enqueue(plain, { number }, { delayMillis: 3_600_000 })
      yield* sql`
        UPDATE outbox_tasks SET state = 'processing', attempts = 1, token = 1, lease_until = clock_now() - interval '1 second'`
      // The first sweep comes with the start.
      if (number === 1) {
        yield* Layer.build(TaskWorkers.layer([TaskHandler.make(plain, () => Effect.void)]).pipe(Layer.provide(steps)))
      }
      yield* eventually(`the sweep of task ${number}`, isTrue("state = 'failed'"))
    }
  }).pipe(Effect.scoped, Effect.provide(services))
)

it.live("the number of dead tasks is sampled again and again", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const dead = Effect.map(
      Metric.snapshot,
      (found) =>
        found.find(({ attributes, id }) => id === "outbox_tasks_dead" && attributes?.["task_type"] === plain.name)
          ?.state as { readonly value: number } | undefined
    )
    const { until } = yield* Ticking.start(TaskMetrics.sample([plain.name]))
    for (const count of [1, 2, 3]) {
      const { taskId } = yield* enqueue(plain, { number: count })
      yield* sql`UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now() WHERE task_id = ${taskId}::uuid`
      yield* until(
        `${count} dead tasks to be counted`,
        "5 seconds",
        Effect.map(dead, (state) => state?.value === count)
      )
    }
  }).pipe(Effect.scoped, Effect.provide(services))
)

it.live("a task that waits for a retry is counted while it waits, and a later one is not until it is due", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const waiting = Effect.map(Metric.snapshot, (found) =>
      Object.fromEntries(
        found.flatMap(({ attributes, id, state }) =>
          id === "outbox_tasks_pending" && attributes?.["task_type"] === plain.name
            ? [[attributes["state"]!, (state as { readonly value: number }).value]]
            : []
        )
      )
    )
    const { until } = yield* Ticking.start(TaskMetrics.sample([plain.name]))
    const shows = (what: string, pending: number, failed: number) =>
      until(
        what,
        "5 seconds",
        Effect.map(waiting, (counts) => isDeepStrictEqual(counts, { pending, failed }))
      )
    yield* shows("both series at 0", 0, 0)
    for (const number of [1, 2, 3]) yield* enqueue(plain, { number })
    yield* enqueue(plain, { number: 4 }, { delayMillis: 3_600_000 })
    yield* shows("three due tasks", 3, 0)
    // One failed and waits, one failed and is due again.
    yield* sql`UPDATE outbox_tasks SET state = 'failed', execute_at = clock_now() + interval '30 minutes' WHERE payload->>'number' = '1'`
    yield* sql`UPDATE outbox_tasks SET state = 'failed' WHERE payload->>'number' = '2'`
    yield* shows("two that failed", 1, 2)
  }).pipe(Effect.scoped, Effect.provide(services))
)

it.live("maintenance goes on as the days pass", () =>
  Effect.gen(function* () {
    const tasks = yield* Tasks
    const { until } = yield* Ticking.start(Layer.build(Maintenance.layer))
    for (const number of [1, 2]) {
      const { taskId } = yield* enqueue(plain, { number })
      yield* Transaction.run(tasks.settle(taskId))
      yield* advance("31 days")
      yield* until(
        `task ${number} to be deleted`,
        "10 minutes",
        Effect.map(rows, (left) => left.length === 0)
      )
    }
  }).pipe(Effect.scoped, Effect.provide(services))
)
