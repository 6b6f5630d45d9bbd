/** Orders of drills that were killed: what waits for a person or for a late attempt goes on, as an operator would have it. */
import { Effect, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SettlePayment } from "../../application/SettlePayment.ts"
import { paymentRecover } from "../../application/tasks/PaymentRecover.ts"
import { PaymentId } from "../../domain/Ids.ts"
import { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import { ArmedFaults } from "../../operations/faults/ArmedFaults.ts"
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

/** Their failed events, and their payments without an outcome. */
const waiting = Effect.gen(function* () {
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
  return { held, open }
})

/** In words what so many of each are. */
const inWords = (events: number, openPayments: number) => [
  ...(events === 0 ? [] : [`${countOf(events, "failed event")} of its orders`]),
  ...(openPayments === 0 ? [] : [`${countOf(openPayments, "payment")} of its orders without an outcome`])
]

/**
 * A payment can't be looked up before the attempt that the drill began has ended: five seconds of a silent gateway, and what a busy machine adds.
 * Shorter than the limit of a stop, for Ctrl-C waits for it.
 */
const patience = Schedule.max([Schedule.spaced("1 second"), Schedule.recurs(20)])

/**
 * Tries their events again, makes lookups of their payments due, and settles those that are manual, until nothing waits any more. Gives up after
 * the patience, and at once where no service runs that could do it. `begins` is told first what there is, for it may take a while. Answers with what
 * came right, and with what still waits.
 */
export const handOn = Effect.fnUntraced(function* (operator: Operator, begins: (what: string) => Effect.Effect<void>) {
  const before = yield* waiting
  for (const what of inWords(before.held.length, before.open.length)) yield* begins(what)
  const [outbox, inbox, settle, tasks, faults] = [
    yield* OutboxDeadLetters,
    yield* InboxDeadLetters,
    yield* SettlePayment,
    yield* Tasks,
    yield* ArmedFaults
  ]
  // A decision that is refused here was taken by the service meanwhile, or needs a person.
  for (const { consumer, eventId } of before.held)
    yield* Effect.ignore(consumer === null ? outbox.retry(eventId, operator) : inbox.retry(consumer, eventId, operator))
  const decide = Effect.gen(function* () {
    const { held, open } = yield* waiting
    for (const { paymentId, status, taskId } of open) {
      if (status === "manual") yield* Effect.ignore(settle.settle(paymentId, {}, operator))
      else if (taskId !== null) yield* Effect.ignore(tasks.retry(taskId, operator))
    }
    return held.length + open.length === 0 || (yield* faults.list).processes.length === 0
  })
  yield* Effect.repeat(decide, { schedule: patience, until: (isDone) => isDone })
  const { held, open } = yield* waiting
  return {
    mended: inWords(Math.max(0, before.held.length - held.length), Math.max(0, before.open.length - open.length)),
    waiting: inWords(held.length, open.length)
  }
})
