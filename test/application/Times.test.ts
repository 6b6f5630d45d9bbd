/** A time is read from the database as the stored instant, in UTC, whatever the sessions' time zone is. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { encodeView, Orders } from "../../src/application/Orders.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { plain } from "../tasks/Support.ts"
import { cancel, placed, test } from "./World.ts"

/** The clock stands still, so every time that is written or read is this one. */
const now = "2026-03-01T00:30:00.123Z"
const stopClock = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(
    `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT timestamptz '${now}' $$`
  )
})

test("an order tells when it was placed and changed, to readers and to whoever changes it", () =>
  Effect.gen(function* () {
    yield* stopClock
    const { body, orderId } = yield* placed
    const orders = yield* Orders
    const read = yield* orders.get(orderId)
    assert.deepInclude(read, { createdAt: now, updatedAt: now })
    assert.strictEqual(body, encodeView(read))
    assert.deepInclude(yield* Transaction.run(orders.lockWhole(orderId)), { createdAt: now, at: now })
    yield* cancel(orderId)
    assert.deepInclude(yield* orders.get(orderId), { createdAt: now, updatedAt: now })
  }))

test("a task tells when it was asked for, when it is due, and when it ended", () =>
  Effect.gen(function* () {
    yield* stopClock
    const tasks = yield* Tasks
    const { taskId } = yield* Transaction.run(
      tasks.enqueue(plain, { number: 1 }, { executeAt: "2026-03-02T00:30:00.123+00:00" })
    )
    yield* tasks.cancel(taskId, { actor: "ada", reason: "it is a test" })
    assert.deepInclude(yield* tasks.get(taskId), {
      enqueuedAt: now,
      executeAt: "2026-03-02T00:30:00.123Z",
      finishedAt: now
    })
  }))
