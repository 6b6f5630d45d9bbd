/** What is stored about the way of an order: its events, payments, mails, and how far each consumer is. Every statement has an index. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { orderAggregate } from "../../domain/Events.ts"
import { PaymentId } from "../../domain/Ids.ts"
import { PaymentStatus } from "../../domain/Payment.ts"
import { DeliveryState, timelinePage } from "../../operations/History.ts"
import { laneOf } from "../../outbox/Lane.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskState } from "../../tasks/TaskType.ts"
import { emailType } from "../tasks/Email.ts"
import { paymentRecover, recoveryKeyOf } from "../tasks/PaymentRecover.ts"

const Text = Schema.NullOr(Schema.String)

/** An event of the order. */
export const EventFact = Schema.Struct({
  eventId: Schema.String,
  version: Schema.Int,
  type: Schema.String,
  topic: Schema.String,
  occurredAt: Schema.String,
  /** When the request drew the event's id, just before it wrote the event. */
  drawnAt: Schema.String,
  /** When it became a dead letter, or was discarded. */
  endedAt: Text,
  traceId: Text,
  /** The payment that the event is about. */
  paymentId: Text,
  status: DeliveryState,
  partition: Schema.NullOr(Schema.Int),
  offset: Text,
  publishedAt: Text,
  attempts: Schema.NullOr(Schema.Int),
  nextAttemptAt: Text,
  lastError: Text
})
export type EventFact = typeof EventFact.Type

/** How far a consumer is with an event. */
export const EffectFact = Schema.Struct({
  consumer: Schema.String,
  eventId: Schema.String,
  state: Schema.Literals(["applied", "retrying", "gap", "parked", "dead", "discarded"]),
  at: Text,
  attempts: Schema.NullOr(Schema.Int),
  nextAttemptAt: Text,
  lastError: Text
})
export type EffectFact = typeof EffectFact.Type

/** The head of a hold: what the order's later events wait behind. `consumer` is null for the outbox. */
export const HoldFact = Schema.Struct({ consumer: Text, eventId: Schema.String, lastError: Text })
export type HoldFact = typeof HoldFact.Type

const task = {
  taskId: Schema.String,
  state: TaskState,
  attempts: Schema.Int,
  enqueuedAt: Schema.String,
  executeAt: Schema.String,
  finishedAt: Text,
  lastError: Text,
  leasedBy: Text,
  traceId: Text
}

/** A mail that an event has asked for. */
export const MailFact = Schema.Struct({
  ...task,
  eventId: Schema.String,
  /** Null until the first send. */
  status: Text,
  sentAt: Text,
  sends: Schema.NullOr(Schema.Int)
})
export type MailFact = typeof MailFact.Type

/** The task that looks a charge or a refund up. */
export const RecoveryFact = Schema.Struct({ ...task, key: Schema.String })
export type RecoveryFact = typeof RecoveryFact.Type

/** A payment of the order, with the request that began it. */
export const PaymentFact = Schema.Struct({
  id: PaymentId,
  status: PaymentStatus,
  method: Schema.String,
  createdAt: Schema.String,
  updatedAt: Schema.String,
  unknownSince: Text,
  capturedAt: Text,
  refundBegunAt: Text,
  refundedAt: Text,
  declineReason: Text,
  /** Null where retention has dropped it. */
  requestPath: Text,
  requestKey: Text
})
export type PaymentFact = typeof PaymentFact.Type

const allEvents = Rows.all(EventFact)
const allEffects = Rows.all(EffectFact)
const allHolds = Rows.all(HoldFact)
const allMails = Rows.all(MailFact)
const allPayments = Rows.all(PaymentFact)
const allRecoveries = Rows.all(RecoveryFact)
/** Now, and when the order's id was drawn. */
const oneNow = Rows.one(Schema.Struct({ at: Schema.String, drawnAt: Schema.String }))

/** An order is declined some times at most; the newest payments are those that a person asks about. */
const maxPayments = 200

const taskColumns = `t.task_id::text AS "taskId", t.state, t.attempts, ${isoTime("t.enqueued_at")} AS "enqueuedAt",
  ${isoTime("t.execute_at")} AS "executeAt", ${isoTime("t.finished_at")} AS "finishedAt", t.last_error AS "lastError",
  t.leased_by AS "leasedBy", t.trace_id AS "traceId"`

/** All that is stored of the order's events with the versions after `cursor`, and of its payments. */
export const read = Effect.fn("JourneyFacts.read")(function* (
  orderId: string,
  cursor: number,
  consumers: ReadonlyArray<string>
) {
  const sql = yield* SqlClient.SqlClient
  const lane = laneOf(orderId)
  // The view tells the states. It has no trace, and no data.
  const events = yield* allEvents(sql`
    WITH stored AS (
      SELECT event_id, trace_id, data, NULL::timestamptz AS ended_at FROM outbox_events WHERE lane = ${lane}::int2 AND aggregate_id = ${orderId}
      UNION ALL SELECT event_id, trace_id, data, NULL FROM outbox_parked WHERE aggregate_type = ${orderAggregate} AND aggregate_id = ${orderId}
      UNION ALL SELECT event_id, trace_id, data, ended_at FROM outbox_dead_letters WHERE aggregate_id = ${orderId}
      UNION ALL SELECT event_id, trace_id, data, NULL FROM event_log
        WHERE aggregate_id = ${orderId} AND aggregate_version > ${cursor}::int4 AND aggregate_version <= ${cursor + timelinePage}::int4)
    SELECT s.event_id::text AS "eventId", s.aggregate_version AS version, s.event_type AS type, s.topic,
           ${sql.literal(isoTime("s.occurred_at"))} AS "occurredAt", ${sql.literal(isoTime("uuid_v7_time(s.event_id)"))} AS "drawnAt",
           ${sql.literal(isoTime("stored.ended_at"))} AS "endedAt", stored.trace_id AS "traceId",
           stored.data ->> 'paymentId' AS "paymentId", s.status, s.broker_partition AS partition, s.broker_offset::text AS "offset",
           ${sql.literal(isoTime("s.published_at"))} AS "publishedAt", s.attempts,
           ${sql.literal(isoTime("s.next_attempt_at"))} AS "nextAttemptAt", s.last_error AS "lastError"
    FROM outbox_status AS s LEFT JOIN stored USING (event_id)
    WHERE s.aggregate_id = ${orderId} AND (s.lane = ${lane}::int2 OR s.lane IS NULL)
      AND s.aggregate_version > ${cursor}::int4 AND s.aggregate_version <= ${cursor + timelinePage}::int4
    ORDER BY s.aggregate_version`)
  const ids = events.map(({ eventId }) => eventId)
  const effects = yield* allEffects(sql`
    SELECT consumer_name AS consumer, event_id::text AS "eventId", 'applied' AS state, ${sql.literal(isoTime("processed_at"))} AS at,
           NULL::int4 AS attempts, NULL::text AS "nextAttemptAt", NULL::text AS "lastError"
    FROM processed_events WHERE event_id = ANY (${ids}::uuid[]) AND consumer_name = ANY (${[...consumers]}::text[])
    UNION ALL
    SELECT p.consumer_name, p.event_id, CASE WHEN p.event_id = h.event_id THEN h.status ELSE 'parked' END,
           ${sql.literal(isoTime("p.parked_at"))}, CASE WHEN p.event_id = h.event_id THEN h.attempts END,
           CASE WHEN p.event_id = h.event_id THEN ${sql.literal(isoTime("h.next_attempt_at"))} END,
           CASE WHEN p.event_id = h.event_id THEN h.last_error END
    FROM inbox_parked AS p JOIN inbox_holds AS h USING (consumer_name, aggregate_id) WHERE p.event_id = ANY (${ids}::text[])
    UNION ALL
    SELECT consumer_name, event_id, status, ${sql.literal(isoTime("ended_at"))}, attempts, NULL, last_error
    FROM inbox_dead_letters WHERE event_id = ANY (${ids}::text[])`)
  const holds = yield* allHolds(sql`
    SELECT NULL::text AS consumer, event_id::text AS "eventId", last_error AS "lastError" FROM outbox_holds
    WHERE aggregate_type = ${orderAggregate} AND aggregate_id = ${orderId}
    UNION ALL
    SELECT consumer_name, event_id, last_error FROM inbox_holds
    WHERE consumer_name = ANY (${[...consumers]}::text[]) AND aggregate_id = ${orderId}`)
  const mails = yield* allMails(sql`
    SELECT ${sql.literal(taskColumns)}, t.idempotency_key AS "eventId", m.status, ${sql.literal(isoTime("m.sent_at"))} AS "sentAt", m.sends
    FROM outbox_tasks AS t LEFT JOIN mail_deliveries AS m USING (task_id)
    WHERE t.task_type = ${emailType.name} AND t.idempotency_key = ANY (${ids}::text[])`)
  const payments = yield* allPayments(sql`
    SELECT p.id::text AS id, p.status, p.payment_method AS method, ${sql.literal(isoTime("p.created_at"))} AS "createdAt",
           ${sql.literal(isoTime("p.updated_at"))} AS "updatedAt", ${sql.literal(isoTime("p.unknown_since"))} AS "unknownSince",
           ${sql.literal(isoTime("p.captured_at"))} AS "capturedAt", ${sql.literal(isoTime("p.refund_begun_at"))} AS "refundBegunAt",
           ${sql.literal(isoTime("p.refunded_at"))} AS "refundedAt", p.decline_reason AS "declineReason",
           k.path AS "requestPath", k.idempotency_key AS "requestKey"
    FROM (SELECT * FROM payments WHERE order_id = ${orderId}::uuid ORDER BY id DESC LIMIT ${maxPayments}) AS p
    LEFT JOIN idempotency_keys AS k ON k.subject_id = p.id
    ORDER BY p.id`)
  const keys = payments.flatMap(({ id }) => [recoveryKeyOf(id, "charge"), recoveryKeyOf(id, "refund")])
  const recoveries = yield* allRecoveries(sql`
    SELECT ${sql.literal(taskColumns)}, t.idempotency_key AS key FROM outbox_tasks AS t
    WHERE t.task_type = ${paymentRecover.name} AND t.idempotency_key = ANY (${keys}::text[])`)
  const { at, drawnAt } = yield* oneNow(sql`
    SELECT ${sql.literal(isoTime("clock_now()"))} AS at, ${sql.literal(isoTime("uuid_v7_time(id)"))} AS "drawnAt"
    FROM (SELECT ${orderId}::uuid AS id) AS drawn`)
  return { at, drawnAt, events, effects, holds, mails, payments, recoveries }
}, Effect.orDie)
export type Facts = Effect.Success<ReturnType<typeof read>>
