/** Orders of drills that were killed: what waits for a person or for a late attempt goes on, as an operator would have it. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SettlePayment } from "../../application/SettlePayment.ts"
import { paymentRecover } from "../../application/tasks/PaymentRecover.ts"
import { PaymentId } from "../../domain/Ids.ts"
import { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import { OutboxDeadLetters } from "../../operations/OutboxDeadLetters.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskId } from "../../tasks/TaskType.ts"
import { Tasks } from "../../tasks/Tasks.ts"

/** The customers of drills, and of nobody else. */
export const customers = "drill-"

const letters = Rows.all(Schema.Struct({ eventId: Schema.String, consumer: Schema.NullOr(Schema.String) }))
const payments = Rows.all(Schema.Struct({ paymentId: PaymentId, status: Schema.String, taskId: Schema.NullOr(TaskId) }))

/** Tries their events again, makes lookups of their payments due, and settles those that are manual. Answers with what it did. */
export const handOn = Effect.fnUntraced(function* (operator: Operator) {
  const sql = yield* SqlClient.SqlClient
  const drilled = sql`SELECT id FROM orders WHERE customer_id LIKE ${`${customers}%`}`
  const held = yield* letters(sql`
    SELECT event_id::text AS "eventId", NULL AS consumer FROM outbox_status
    WHERE status IN ('retrying', 'dead') AND aggregate_id IN (SELECT id::text FROM (${drilled}) AS o)
    UNION ALL
    SELECT event_id, consumer_name FROM inbox_holds
    WHERE status IN ('retrying', 'dead') AND aggregate_id IN (SELECT id::text FROM (${drilled}) AS o)`)
  const open = yield* payments(sql`
    SELECT p.id AS "paymentId", p.status, t.task_id AS "taskId"
    FROM payments AS p LEFT JOIN outbox_tasks AS t ON t.task_type = ${paymentRecover.name} AND t.idempotency_key = p.id::text
    WHERE p.status IN ('charging', 'manual') AND p.order_id IN (${drilled})`)
  const [outbox, inbox, settle, tasks] = [
    yield* OutboxDeadLetters,
    yield* InboxDeadLetters,
    yield* SettlePayment,
    yield* Tasks
  ]
  // A decision that is refused here was taken by the service meanwhile, or needs a person, and `status` tells so.
  for (const { consumer, eventId } of held)
    yield* Effect.ignore(consumer === null ? outbox.retry(eventId, operator) : inbox.retry(consumer, eventId, operator))
  for (const { paymentId, status, taskId } of open)
    yield* Effect.ignore(
      status === "manual"
        ? settle.settle(paymentId, {}, operator)
        : taskId === null
          ? Effect.void
          : tasks.retry(taskId, operator)
    )
  return [
    ...(held.length === 0 ? [] : [`${countOf(held.length, "event")} of its orders failed`]),
    ...(open.length === 0 ? [] : [`${countOf(open.length, "payment")} of its orders had no outcome`])
  ]
})
