/**
 * `bench tasks`: measures the engine, with tasks that do nothing. One process drains a backlog, in an empty table and beside finished
 * tasks. Single tasks are timed from the commit of their enqueuing to their handler's start. The claim is timed by itself.
 */
import { Effect, Layer, Queue, Schema } from "effect"
import { TaskClaim } from "../src/tasks/TaskClaim.ts"
import { TaskFinish } from "../src/tasks/TaskFinish.ts"
import * as TaskHandler from "../src/tasks/TaskHandler.ts"
import { TaskLeases } from "../src/tasks/TaskLeases.ts"
import { Tasks } from "../src/tasks/Tasks.ts"
import type { TaskType } from "../src/tasks/TaskType.ts"
import { TaskWakeup } from "../src/tasks/TaskWakeup.ts"
import { TaskWorkers, workerConnections } from "../src/tasks/TaskWorkers.ts"
import { DatabaseSettings } from "../src/platform/DatabaseSettings.ts"
import * as ReservedPool from "../src/postgres/ReservedPool.ts"
import { Transaction } from "../src/platform/Transaction.ts"
import { Environment, Side } from "./Environment.ts"
import * as Cpu from "./Cpu.ts"
import { median, quantile, show, spread, table } from "./Figures.ts"
import * as Service from "./Service.ts"
import { idAt } from "../test/support/SqlIds.ts"
import { until } from "./Workload.ts"

const type: TaskType<{ readonly orderId: string }> = {
  name: "bench",
  payload: Schema.Struct({ orderId: Schema.String }),
  concurrency: 1_000,
  timeoutMillis: 60_000
}

const reserved = Layer.unwrap(
  Environment.useSync(({ databaseUrl }) =>
    ReservedPool.layer("workers", workerConnections).pipe(Layer.provide(DatabaseSettings.layerOf({ url: databaseUrl })))
  )
)

const steps = Layer.mergeAll(TaskClaim.layer, TaskLeases.layer, TaskFinish.layer).pipe(Layer.provide(reserved))

const services = Tasks.layer.pipe(
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(Service.platform),
  Layer.provideMerge(steps)
)

/** Inserts tasks in this state, as a writer leaves them. */
const fill = Effect.fnUntraced(function* (state: "pending" | "completed", count: number) {
  const sql = yield* Side
  yield* sql`
    INSERT INTO outbox_tasks (task_id, task_type, state, payload, priority, enqueued_at, execute_at, attempts, token, trace_id, span_id, finished_at)
    SELECT ${sql.literal(idAt("clock.now"))}, ${type.name}, ${state}, json_build_object('orderId', gen_random_uuid()), 0, clock.now, clock.now,
           0, 0, '0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331', CASE WHEN ${state}::text = 'completed' THEN clock.now END
    FROM generate_series(1, ${count}::int4), (SELECT clock_now() AS now) AS clock`
})

const empty = Effect.gen(function* () {
  const sql = yield* Side
  yield* sql`TRUNCATE outbox_tasks CASCADE`
})

const settle = Effect.gen(function* () {
  const sql = yield* Side
  yield* sql`VACUUM ANALYZE outbox_tasks`
  yield* sql`CHECKPOINT`
})

/** The tasks that one process drains in a second, and the cost of a task, in microseconds of CPU. */
const drain = Effect.fnUntraced(function* (count: number) {
  yield* fill("pending", count)
  yield* settle
  const sql = yield* Side
  let ran = 0
  const handler = TaskHandler.make(type, () => Effect.sync(() => void ran++))
  const before = yield* Cpu.sample
  const started = performance.now()
  yield* Layer.build(TaskWorkers.layer([handler]))
  yield* until(Effect.sync(() => ran >= count))
  const waits = sql`SELECT 1 AS one FROM outbox_tasks WHERE state IN ('pending', 'failed') UNION ALL SELECT 1 FROM outbox_tasks WHERE state = 'processing' LIMIT 1`
  yield* until(Effect.map(waits, (rows) => rows.length === 0))
  const seconds = (performance.now() - started) / 1_000
  const { node, postgres = Number.NaN } = Cpu.between(before, yield* Cpu.sample)
  return { perSecond: count / seconds, nodeMicros: (node / count) * 1e6, postgresMicros: (postgres / count) * 1e6 }
}, Effect.scoped)

/** The time from a commit to its handler's start in the same process, in milliseconds, one task after the other. */
const latency = Effect.fnUntraced(function* (count: number) {
  const starts = yield* Queue.unbounded<number>()
  const tasks = yield* Tasks
  const handler = TaskHandler.make(type, () => Effect.asVoid(Queue.offer(starts, performance.now())))
  yield* Layer.build(TaskWorkers.layer([handler]))
  const one = Effect.gen(function* () {
    yield* Transaction.run(tasks.enqueue(type, { orderId: "1" }))
    const committed = performance.now()
    const millis = (yield* Queue.take(starts)) - committed
    // Longer than a task takes, so that all workers are idle for the next one.
    yield* Effect.sleep(10)
    return Math.max(0, millis)
  })
  yield* Effect.repeat(one, { times: 20 })
  const millis = yield* Effect.forEach(Array.from({ length: count }), () => one)
  return { p50: quantile(millis, 0.5), p99: quantile(millis, 0.99) }
}, Effect.scoped)

/** A claim that finds nothing, and one that finds seven tasks beside the others in the table; p50 in milliseconds. */
const claim = Effect.gen(function* () {
  const claims = yield* TaskClaim
  const sql = yield* Side
  const timed = Effect.gen(function* () {
    const started = performance.now()
    yield* claims.claim([{ typeName: type.name, free: 100 }], "bench")
    return performance.now() - started
  })
  const idle = yield* Effect.forEach(Array.from({ length: 200 }), () => timed)
  const seven = yield* Effect.forEach(Array.from({ length: 100 }), () =>
    Effect.andThen(
      fill("pending", 7),
      Effect.tap(
        timed,
        () =>
          sql`UPDATE outbox_tasks SET state = 'completed', lease_until = NULL, finished_at = clock_now() WHERE state = 'processing'`
      )
    )
  )
  return { idleMillis: median(idle), sevenMillis: median(seven) }
})

const summary = (rounds: ReadonlyArray<Effect.Success<ReturnType<typeof drain>>>) => ({
  perSecond: spread(rounds.map(({ perSecond }) => perSecond)),
  nodeMicros: median(rounds.map(({ nodeMicros }) => nodeMicros)),
  postgresMicros: median(rounds.map(({ postgresMicros }) => postgresMicros))
})

/** Runs all measurements. */
export const tasks = Effect.fnUntraced(
  function* (options: { readonly rounds: number; readonly tasks: number; readonly finished: number }) {
    yield* drain(options.tasks / 10)
    const rounds = yield* Effect.forEach(Array.from({ length: options.rounds }), () =>
      Effect.gen(function* () {
        yield* empty
        return yield* drain(options.tasks)
      })
    )
    yield* empty
    const commitToStart = yield* latency(300)
    const claimEmpty = yield* claim
    yield* fill("completed", options.finished)
    yield* settle
    const claimBesides = yield* claim
    const besides = yield* Effect.forEach(Array.from({ length: options.rounds }), () => drain(options.tasks))
    return {
      workload: options,
      drain: { empty: summary(rounds), besides: summary(besides) },
      commitToStartMillis: commitToStart,
      claim: { empty: claimEmpty, besides: claimBesides }
    }
  },
  Effect.provide(Layer.fresh(services))
)

/** The result for a reader. */
export const print = (result: Effect.Success<ReturnType<typeof tasks>>): string => {
  const { claim, commitToStartMillis, drain, workload } = result
  const row = (name: string, { nodeMicros, perSecond, postgresMicros }: ReturnType<typeof summary>) => [
    name,
    show(perSecond, 0),
    nodeMicros.toFixed(0),
    postgresMicros.toFixed(0)
  ]
  const besides = `beside ${workload.finished} finished`
  return [
    `${workload.rounds} rounds of ${workload.tasks} tasks that do nothing, drained by one process: median (least … most)`,
    "",
    table(["", "tasks/s", "Node µs", "Postgres µs"], [row("empty table", drain.empty), row(besides, drain.besides)]),
    "",
    `Commit to start, idle: p50 ${commitToStartMillis.p50.toFixed(2)} ms, p99 ${commitToStartMillis.p99.toFixed(2)} ms`,
    "",
    table(
      ["claim, p50 in ms", "of nothing", "of seven"],
      [
        ["empty table", claim.empty.idleMillis.toFixed(2), claim.empty.sevenMillis.toFixed(2)],
        [besides, claim.besides.idleMillis.toFixed(2), claim.besides.sevenMillis.toFixed(2)]
      ]
    )
  ].join("\n")
}
