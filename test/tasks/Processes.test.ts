/** Worker processes that are killed and frozen: each task's effect, a row that is written with its end, exists once. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Random, Redacted, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { enqueuer, plain, rows } from "./Support.ts"
import * as WorkerProtocol from "./WorkerProtocol.ts"

const compileCache = Path.join(import.meta.dirname, "../../node_modules/.cache/paid-once/compiled")

const start = Effect.fnUntraced(function* (settings: Partial<WorkerProtocol.Settings> = {}) {
  const { url } = yield* TestDatabase
  const process = yield* ServiceProcess.start({
    script: Path.join(import.meta.dirname, "workerProcess.ts"),
    env: {
      NODE_COMPILE_CACHE: compileCache,
      [WorkerProtocol.variable]: JSON.stringify({
        faults: "",
        slowMillis: 5,
        databaseUrl: Redacted.value(url),
        ...settings
      } satisfies WorkerProtocol.Settings)
    }
  })
  // A frozen process would not get SIGTERM.
  yield* Effect.addFinalizer(() => process.signal("SIGKILL"))
  return process
})

const makeTables = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE effects (number float8 NOT NULL, attempt int4 NOT NULL, pid int4 NOT NULL)`
})

/** Enqueues these numbers, some of them with an ordering key. */
const enqueueAll = (from: number, count: number) =>
  Effect.flatMap(Tasks, (tasks) =>
    Transaction.run(
      Effect.forEach(
        Array.from({ length: count }, (_, index) => from + index),
        (number) => tasks.enqueue(plain, { number }, { orderingKey: number % 10 === 0 ? "line" : undefined })
      )
    )
  )

const effects = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{ readonly number: number; readonly attempt: number; readonly pid: number }>`
    SELECT number, attempt, pid FROM effects ORDER BY number`
})

const finished = Effect.map(rows, (all) => all.every(({ state }) => state === "completed"))

const services = enqueuer.pipe(Layer.provideMerge(TestDatabase.layer))

it.live(
  "with workers killed at random, and at each fault point, each task's effect happens once",
  () =>
    Effect.gen(function* () {
      yield* makeTables
      let count = 0
      const enqueueSome = Effect.suspend(() =>
        Effect.tap(enqueueAll(count, 40), () => Effect.sync(() => (count += 40)))
      )
      for (const point of ["after-claim", "during-run", "after-handler", "after-finish"]) {
        yield* enqueueSome
        const victim = yield* start({ faults: `task.${point}=crash:1` })
        assert.strictEqual(yield* victim.exit, "SIGKILL")
      }
      for (let round = 0; round < 6; round++) {
        yield* enqueueSome
        // Counted before the worker starts, which may finish all of the work in a moment.
        const before = (yield* effects).length
        const victim = yield* start()
        yield* eventually(
          "the victim to work",
          Effect.map(effects, (found) => found.length > before)
        )
        yield* Effect.sleep(yield* Random.nextIntBetween(0, 30))
        yield* victim.signal("SIGKILL")
        yield* victim.exit
      }
      yield* start()
      yield* start()
      yield* eventually("all tasks to end", finished)
      const numbers = (yield* effects).map(({ number }) => number)
      assert.deepStrictEqual(
        numbers,
        Array.from({ length: count }, (_, number) => number)
      )
      assert.isTrue(
        (yield* rows).some(({ history }) => history.some(({ error }) => error.includes("its lease ran out"))),
        "some worker died at work"
      )
    }).pipe(Effect.scoped, Effect.provide(services)),
  180_000
)

it.live(
  "a worker that is frozen past its lease and thawed changes nothing any more, and goes on with other tasks",
  () =>
    Effect.gen(function* () {
      yield* makeTables
      // Frozen between its handler's end and the task's end. Nothing interrupts it there, and when it thaws it will try to write the end.
      const frozen = yield* start({ slowMillis: 0, faults: "task.after-handler=delay:1:5000" })
      yield* enqueueAll(3, 1)
      yield* Effect.sync(() => frozen.output().includes('"began":3')).pipe(
        Effect.repeat({ until: (began) => began, schedule: Schedule.spaced("5 millis") })
      )
      yield* frozen.signal("SIGSTOP")
      const owner = yield* start()
      yield* eventually("the new owner to end it", finished)
      const [before] = yield* rows
      const effectsOf = Effect.map(effects, (all) => all.map(({ number, pid }) => [number, pid]))
      assert.deepStrictEqual(yield* effectsOf, [[3, owner.pid]])
      yield* owner.signal("SIGKILL")
      yield* owner.exit

      yield* frozen.signal("SIGCONT")
      // A clean stop waits for the ends that are not written yet.
      yield* enqueueAll(4, 1)
      yield* eventually("the thawed worker to go on", finished)
      yield* frozen.signal("SIGTERM")
      yield* frozen.exit
      const [after] = yield* rows
      assert.deepStrictEqual({ ...after, dueSeconds: 0 }, { ...before, dueSeconds: 0 })
      assert.deepStrictEqual(yield* effectsOf, [
        [3, owner.pid],
        [4, frozen.pid]
      ])
    }).pipe(Effect.scoped, Effect.provide(services)),
  120_000
)
