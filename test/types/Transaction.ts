/**
 * Code that must not compile. `tsc` checks this file with the rest of the tree: an expected error that does not occur is an error.
 */
// @effect-diagnostics missingEffectContext:off
import type { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Orders } from "../../src/application/Orders.ts"
import { analytics } from "../../src/application/subscribers/Analytics.ts"
import type { Change, Order } from "../../src/domain/Order.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import type { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskId, TaskType } from "../../src/tasks/TaskType.ts"
import { Transaction } from "../../src/platform/Transaction.ts"

declare const order: Order
declare const change: Change
declare const outbox: Outbox["Service"]
declare const orders: Orders["Service"]
declare const inbox: Inbox["Service"]
declare const tasks: Tasks["Service"]
declare const taskId: TaskId
const taskType: TaskType<{ readonly to: string }> = {
  name: "email",
  payload: Schema.Struct({ to: Schema.String }),
  concurrency: 1,
  timeoutMillis: 1
}
/** Runs effects that need the database only, and so no effect that needs a transaction. */
declare const runOutside: <A, E>(effect: Effect.Effect<A, E, PgClient.PgClient | SqlClient.SqlClient>) => void

const stream = { topic: "orders", aggregateType: "Order", aggregateId: "1" }
const event = { eventType: "Happened", schemaVersion: 1, data: {} }

// An append outside a transaction does not compile; inside, it does.
const append = outbox.append(stream, 1, [event])
// @ts-expect-error Transaction is required
runOutside(append)
runOutside(Transaction.run(append))

// An aggregate saved outside a transaction does not compile.
// @ts-expect-error Transaction is required
runOutside(orders.save(change))

// An append of nothing does not compile.
// @ts-expect-error at least one event
export const nothing = outbox.append(stream, 1, [])

// An aggregate saved without an event does not compile.
// @ts-expect-error events are missing
export const silent = orders.save({ order })
// @ts-expect-error an empty list of events
export const empty = orders.save({ order, events: [] })

// Marking an event as applied outside a transaction does not compile.
// @ts-expect-error Transaction is required
runOutside(inbox.markFirst("analytics", []))

// A subscriber that writes through the pool, outside its transaction, does not compile.
export const stray: Subscriber = {
  ...analytics,
  // @ts-expect-error a handler has nothing but its Transaction
  handle: () => Effect.flatMap(SqlClient.SqlClient, (sql) => sql`INSERT INTO revenue_daily DEFAULT VALUES`)
}

// A task enqueued, settled or hastened outside a transaction does not compile; inside, it does.
// @ts-expect-error Transaction is required
runOutside(tasks.enqueue(taskType, { to: "a@example.com" }))
runOutside(Transaction.run(tasks.enqueue(taskType, { to: "a@example.com" })))
// @ts-expect-error Transaction is required
runOutside(tasks.settle(taskId))
// @ts-expect-error Transaction is required
runOutside(tasks.settleByKey(taskType, "1"))
// @ts-expect-error Transaction is required
runOutside(tasks.hasten(taskId))

// A task whose payload is not its type's does not compile.
// @ts-expect-error `to` is a string
export const wrongPayload = tasks.enqueue(taskType, { to: 1 })

// A handler that gives back something else than its finishing writes does not compile.
// @ts-expect-error no effect
export const wrongResult = TaskHandler.make(taskType, () => Effect.succeed(1))
