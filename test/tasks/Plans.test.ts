/** The plans of the engine's statements: beside 50,000 finished tasks, indexes without finished tasks find the seven that wait. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as TaskCleanup from "../../src/tasks/TaskCleanup.ts"
import { TaskClaim } from "../../src/tasks/TaskClaim.ts"
import { TaskFinish } from "../../src/tasks/TaskFinish.ts"
import { TaskLeases } from "../../src/tasks/TaskLeases.ts"
import * as TaskMetrics from "../../src/tasks/TaskMetrics.ts"
import { planned } from "../support/Planned.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { idAt } from "../support/SqlIds.ts"
import { enqueue, enqueuer, plain, rows, settings, steps } from "./Support.ts"

const services = enqueuer.pipe(Layer.provideMerge(settings()), Layer.provideMerge(TestDatabase.layer))

layer(services, { excludeTestServices: true })("plans", (it) => {
  it.effect("there are 50,000 finished tasks and seven that wait", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`
        INSERT INTO outbox_tasks (task_id, task_type, state, payload, priority, ordering_key, idempotency_key, enqueued_at, execute_at, attempts, token, finished_at)
        SELECT ${sql.literal(idAt("clock.now"))}, 'plain', CASE WHEN number % 50 = 0 THEN 'dead' ELSE (ARRAY['completed', 'cancelled'])[1 + number % 2] END, '{"number": 1}', 0,
               CASE WHEN number % 2 = 0 THEN 'key ' || number % 100 END, number::text, clock.now, clock.now, 1, 1,
               clock.now - number * interval '1 minute'
        FROM generate_series(1, 50000) AS number, (SELECT clock_now() AS now) AS clock`
      for (let number = 0; number < 7; number++) {
        yield* enqueue(
          plain,
          { number },
          number < 3 ? { orderingKey: "key 1" } : { delayMillis: number === 6 ? 60_000 : 0 }
        )
      }
      yield* sql`ANALYZE outbox_tasks`
    })
  )

  it.effect("claim, end, heartbeat, sweep, next due and samples use their partial indexes", () =>
    Effect.gen(function* () {
      const claims = yield* TaskClaim
      const finishes = yield* TaskFinish
      const leases = yield* TaskLeases
      const claim = yield* planned(
        claims.claim(
          [
            { typeName: "plain", free: 3 },
            { typeName: "other", free: 1_000 }
          ],
          "test"
        )
      )
      assert.includeMembers(claim.indexes, ["outbox_tasks_due", "outbox_tasks_line", "outbox_tasks_pkey"])
      assert.notInclude(claim.scans, "outbox_tasks")

      const running = (yield* rows).filter(({ state }) => state === "processing")
      assert.strictEqual(running.length, 3)
      const renew = yield* planned(
        leases.renew(running.map(({ taskId, token }) => ({ taskId: taskId as never, token })))
      )
      assert.deepStrictEqual(renew, { indexes: ["outbox_tasks_pkey"], scans: [] })
      const [first] = running
      const finish = yield* planned(
        finishes.finish([{ taskId: first!.taskId as never, token: first!.token, outcome: "completed" }])
      )
      assert.deepStrictEqual(finish, { indexes: ["outbox_tasks_pkey"], scans: [] })

      // One lease has expired, so that the second statement is planned, too.
      const sql = yield* SqlClient.SqlClient
      yield* enqueue(plain, { number: 8 })
      yield* claims.claim([{ typeName: "plain", free: 1 }], "lost")
      yield* sql`UPDATE outbox_tasks SET lease_until = clock_now() WHERE leased_by = 'lost'`
      const sweep = yield* planned(leases.recover(new Map([["plain", [1]]])))
      assert.include(sweep.indexes, "outbox_tasks_pkey")
      assert.include(sweep.indexes, "outbox_tasks_leases")
      assert.notInclude(sweep.scans, "outbox_tasks")

      const next = yield* planned(claims.nextDue(["plain", "other"]))
      assert.deepStrictEqual(next, { indexes: ["outbox_tasks_due"], scans: [] })

      const samples = yield* planned(TaskMetrics.counts)
      assert.sameMembers([...samples.indexes], ["outbox_tasks_due", "outbox_tasks_dead"])
      assert.notInclude(samples.scans, "outbox_tasks")
    }).pipe(Effect.provide(steps))
  )

  it.effect("cleanup uses its partial index, deletes old tasks in chunks, and keeps dead and young ones", () =>
    Effect.gen(function* () {
      const cleanup = yield* planned(TaskCleanup.deleteExpired(30))
      assert.includeMembers(cleanup.indexes, ["outbox_tasks_done", "outbox_tasks_pkey"])
      assert.notInclude(cleanup.scans, "outbox_tasks")
      const sql = yield* SqlClient.SqlClient
      const left = yield* sql<{ readonly state: string; readonly old: number }>`
        SELECT state, count(*) FILTER (WHERE finished_at < clock_now() - interval '30 days')::int4 AS old
        FROM outbox_tasks WHERE finished_at IS NOT NULL GROUP BY state ORDER BY state`
      assert.deepStrictEqual(left, [
        { state: "cancelled", old: 0 },
        { state: "completed", old: 0 },
        // Enqueued a minute apart: 43,199 tasks are younger than 30 days, and of the others every fiftieth one is dead.
        { state: "dead", old: 137 }
      ])
      assert.strictEqual(yield* TaskCleanup.countExpired(30), 0)
      assert.strictEqual(yield* TaskCleanup.deleteExpired(0), 0)
    })
  )
})
