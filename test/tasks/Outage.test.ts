/** A task that meets an outage of the database is run again, and its attempts are for faults of its own. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import * as TaskWorker from "../../src/tasks/TaskWorker.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { advance, enqueue, enqueuer, install, plain, rows, settings, steps } from "./Support.ts"

const services = Layer.merge(steps, Layer.effectDiscard(install)).pipe(
  Layer.provideMerge(enqueuer),
  Layer.provideMerge(settings({ retryDelaysMillis: [60_000] })),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

layer(services, { excludeTestServices: true })("a task in an outage", (it) => {
  for (const [state, isCounted] of [
    ["53100", false],
    ["53200", false],
    ["57P01", false],
    ["25006", false],
    // The task's own statement exceeded a limit, and would again.
    ["53400", true],
    ["22012", true]
  ] as const) {
    it.effect(`SQLSTATE ${state} counts ${isCounted ? "an" : "no"} attempt`, () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`TRUNCATE outbox_tasks CASCADE`
        let left = 5
        const worker = yield* TaskWorker.make([
          TaskHandler.make(plain, () =>
            Effect.suspend(() =>
              left-- > 0
                ? Effect.orDie(sql.unsafe(`DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '${state}'; END $$`))
                : Effect.void
            )
          )
        ])
        yield* enqueue(plain, { number: 1 })
        for (let turn = 0; turn < 6; turn++) {
          yield* worker.runOnce
          // Longer than any wait after an outage, and not as long as the wait after a failure.
          yield* advance(isCounted ? "80 seconds" : "10 seconds")
        }
        const [task] = yield* rows
        if (isCounted) assert.deepInclude(task, { state: "dead", attempts: 2 })
        else assert.deepInclude(task, { state: "completed", attempts: 1, lastError: null })
      })
    )
  }
})
