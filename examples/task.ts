/**
 * Work after a commit: a transaction enqueues a task, and a worker runs it once the transaction has committed.
 *
 *   npm run example examples/task.ts
 */
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Schedule, Schema } from "effect"
import { randomUUID } from "node:crypto"
import * as Plain from "paid-once/plain/Plain"
import * as PlainTasks from "paid-once/plain/PlainTasks"
import * as Rows from "paid-once/platform/Rows"
import { Transaction } from "paid-once/platform/Transaction"
import * as TaskHandler from "paid-once/tasks/TaskHandler"
import { Tasks } from "paid-once/tasks/Tasks"
import type { TaskType } from "paid-once/tasks/TaskType"
import { location } from "./Location.ts"

const createTables = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* sql`CREATE TABLE IF NOT EXISTS members (email text PRIMARY KEY, welcomed_by_run int)`
})

/** The type of task as a value: code that enqueues such a task imports this, and not the handler. */
const welcome: TaskType<{ readonly email: string }> = {
  name: "welcome",
  payload: Schema.Struct({ email: Schema.String }),
  concurrency: 4,
  timeoutMillis: 30_000,
  // A task has one more run than delays: this one is dead after four failed runs.
  retryDelaysMillis: [10, 1_000, 60_000]
}

/** The member and the task commit together. With `fails` the transaction rolls back: no member, and no welcome. */
const join = Effect.fn("join")(function* (email: string, { fails = false } = {}) {
  const { sql } = yield* Transaction
  const tasks = yield* Tasks
  yield* sql`INSERT INTO members VALUES (${email}, NULL)`
  yield* tasks.enqueue(welcome, { email }, { idempotencyKey: email })
  if (fails) return yield* Effect.fail("the card was declined")
})

/**
 * Runs at least once, outside of any transaction, and each time with the same `taskId`, which is the idempotency key for other systems. The
 * effect that it returns commits with the task's end, and so takes place once.
 */
const welcomeHandler = TaskHandler.make(
  welcome,
  Effect.fn("welcome.run")(function* ({ attempt, payload: { email } }) {
    // After a failure the task runs again, after the type's delay.
    if (attempt === 1) return yield* Effect.fail("the mail server is busy")
    return Effect.gen(function* () {
      const { sql } = yield* Transaction
      yield* sql`UPDATE members SET welcomed_by_run = ${attempt} WHERE email = ${email}`
    })
  })
)

const member = Rows.first(Schema.Struct({ run: Schema.NullOr(Schema.Int) }))

const program = Effect.gen(function* () {
  yield* createTables
  const sql = yield* PgClient.PgClient
  const run = randomUUID()
  const [ada, bob] = [`ada.${run}@example.com`, `bob.${run}@example.com`]
  yield* Transaction.run(join(ada))
  yield* Effect.ignore(Transaction.run(join(bob, { fails: true })))

  const find = (email: string) => member(sql`SELECT welcomed_by_run AS run FROM members WHERE email = ${email}`)
  const welcomed = yield* find(ada).pipe(
    Effect.repeat({ until: (row) => typeof row?.run === "number", schedule: Schedule.spaced("20 millis") }),
    Effect.timeout("60 seconds")
  )
  const tasksOfBob = yield* sql`SELECT FROM outbox_tasks WHERE idempotency_key = ${bob}`
  yield* Console.log(`Ada was welcomed by run ${welcomed?.run} of her task.`)
  yield* Console.log(`Bob's transaction rolled back: ${tasksOfBob.length} tasks for him.`)
})

const service = PlainTasks.workers([welcomeHandler]).pipe(
  Layer.provideMerge(PlainTasks.tasks),
  Layer.provideMerge(Plain.database()),
  Layer.provide(location)
)

await Effect.runPromise(Effect.provide(program, service))
