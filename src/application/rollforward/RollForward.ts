/**
 * Rolls a restored database forward from its topic: orders and payments get what their events tell, and the archive gets the events.
 *
 * It is for a database on which nothing runs. The consumers' effects are not written here: the consumers' own marks are as old as the database, so
 * they read the topic again from its first record, and apply what they have not (docs/restore.md).
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { PgClient } from "@effect/sql-pg"
import { ordersTopic, type OrderEvent } from "../../domain/Events.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { decodeOrderEvent } from "../OrderEvents.ts"
import * as TopicRecords from "./TopicRecords.ts"
import { standingsOf } from "./Unknown.ts"

/** What became of the topic's records. */
export interface RolledForward {
  /** Records of orders in the topic. */
  readonly read: number
  /** Events that the database had lost, and has again; of a dry run, would have. */
  readonly applied: number
  /** Orders whose version was used for another event since. A person decides; the first hundred. */
  readonly collisions: ReadonlyArray<string>
  /** Orders of which an event before the missing ones is in the topic no more. The first hundred. */
  readonly gaps: ReadonlyArray<string>
}

/** The events leave no method of payment. It is asked for by no one but a charge, and these payments are charged. */
const unknownMethod = "unknown (rolled forward)"

const listLimit = 100

/** An order is not where its event begins: one before it is missing. */
class Gap extends Schema.TaggedError<Gap>()("Gap", {}) {}

/** Writes the state that the event announces. The order's version has to be the one before. */
const writeState = Effect.fnUntraced(function* (
  { envelope: { aggregateId, aggregateVersion, occurredAt } }: TopicRecords.OrderRecord,
  { _tag, data }: OrderEvent
) {
  const { sql } = yield* Transaction
  if (_tag === "OrderPlaced") {
    const made = yield* sql`
      INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
      SELECT ${aggregateId}::uuid, ${data.customerId}, ${data.total.currency}, 'pending', 1, ${data.total.amountMinor}::int8,
             ${occurredAt}::timestamptz, ${occurredAt}::timestamptz
      WHERE ${aggregateVersion}::int4 = 1 RETURNING 1`
    if (made.length === 0) return yield* new Gap()
    yield* sql`
      INSERT INTO order_lines (order_id, position, sku, quantity, unit_amount_minor)
      SELECT ${aggregateId}::uuid, l.position - 1, l.sku, l.quantity, l.amount
      FROM unnest(${data.lines.map(({ sku }) => sku)}::text[], ${data.lines.map(({ quantity }) => quantity)}::int4[],
                  ${data.lines.map(({ unitAmountMinor }) => String(unitAmountMinor))}::text[]::int8[]) WITH ORDINALITY AS l(sku, quantity, amount, position)`
    return
  }
  const status =
    _tag === "OrderPaid"
      ? "paid"
      : _tag === "OrderCancelled"
        ? "cancelled"
        : _tag === "OrderRefunded"
          ? "refunded"
          : null
  const moved = yield* sql`
    UPDATE orders SET status = coalesce(${status}::text, status), version = ${aggregateVersion}::int4, updated_at = ${occurredAt}::timestamptz
    WHERE id = ${aggregateId}::uuid AND version = ${aggregateVersion}::int4 - 1 RETURNING 1`
  if (moved.length === 0) return yield* new Gap()
  if (_tag === "OrderCancelled") return
  // A payment of the backup may be under way there: its recovery would announce the outcome a second time.
  const payment = { OrderPaid: "captured", OrderRefunded: "refunded", PaymentDeclined: "declined" }[_tag]
  yield* sql`
    INSERT INTO payments AS p (id, order_id, status, payment_method, amount_minor, currency, captured_minor, refunded_minor, decline_reason,
                               leased_until, created_at, updated_at, captured_at, refund_begun_at, refunded_at)
    SELECT ${data.paymentId}::uuid, o.id, new.status, ${unknownMethod}, o.total_amount_minor, o.currency,
           CASE WHEN new.status = 'declined' THEN 0 ELSE o.total_amount_minor END,
           CASE WHEN new.status = 'refunded' THEN o.total_amount_minor ELSE 0 END, new.reason,
           new.at, new.at, new.at, CASE WHEN new.status <> 'declined' THEN new.at END,
           CASE WHEN new.status = 'refunded' THEN new.at END, CASE WHEN new.status = 'refunded' THEN new.at END
    FROM orders AS o, (SELECT ${payment}::text AS status, ${occurredAt}::timestamptz AS at, ${_tag === "PaymentDeclined" ? data.reason : null}::text AS reason) AS new
    WHERE o.id = ${aggregateId}::uuid
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, captured_minor = excluded.captured_minor, refunded_minor = excluded.refunded_minor,
        decline_reason = excluded.decline_reason, updated_at = excluded.updated_at, captured_at = coalesce(p.captured_at, excluded.captured_at),
        refund_begun_at = coalesce(p.refund_begun_at, excluded.refund_begun_at), refunded_at = excluded.refunded_at`
})

/** The event, as the mark of its dispatcher has archived it. */
const archive = Effect.fnUntraced(function* ({ envelope, offset, partition, spanId }: TopicRecords.OrderRecord) {
  const { sql } = yield* Transaction
  yield* sql`
    INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                           occurred_at, trace_id, span_id, data, broker_partition, broker_offset, published_at)
    VALUES (${envelope.eventId}::uuid, ${ordersTopic}, ${envelope.eventType}, ${envelope.schemaVersion}::int2, ${envelope.aggregateType},
            ${envelope.aggregateId}, ${envelope.aggregateVersion}::int4, ${envelope.occurredAt}::timestamptz, ${envelope.traceId},
            ${spanId ?? "0".repeat(16)}, ${JSON.stringify(envelope.data)}::text::json, ${partition}::int4, ${offset}::int8, clock_now())
    ON CONFLICT DO NOTHING`
})

/**
 * Reads the whole topic, and writes what the database has lost, an event in a transaction. It may be repeated: what was written is known then. A dry run
 * only counts.
 */
export const run = Effect.fn("RollForward.run")(function* (operator: OperatorAudit.Operator | "dry run") {
  let [read, applied] = [0, 0]
  // All of them, and not the first: what follows one must not be written. They are as many as the service has changed on a database that was behind.
  const collisions = new Set<string>()
  const gaps = new Set<string>()
  const apply = (record: TopicRecords.OrderRecord) =>
    Effect.flatMap(decodeOrderEvent(record.envelope), (event) =>
      Transaction.run(Effect.andThen(writeState(record, event), archive(record)))
    )
  yield* TopicRecords.forEachSlice(
    ordersTopic,
    Effect.fnUntraced(function* (records) {
      const standings = yield* standingsOf(records)
      read += records.length
      for (const [index, record] of records.entries()) {
        const { aggregateId } = record.envelope
        if (standings[index] === "known") continue
        if (standings[index] === "collision") collisions.add(aggregateId)
        // What follows a collision tells of an order that is another one here.
        else if (collisions.has(aggregateId)) continue
        else if (operator === "dry run") applied += 1
        else {
          const outcome = yield* Effect.result(apply(record))
          if (outcome._tag === "Success") applied += 1
          else if (outcome.failure instanceof Gap) gaps.add(aggregateId)
          else return yield* Effect.die(outcome.failure)
        }
      }
    })
  )
  const firstOf = (ids: Set<string>) => [...ids].slice(0, listLimit)
  const result: RolledForward = { read, applied, collisions: firstOf(collisions), gaps: firstOf(gaps) }
  if (operator !== "dry run") {
    yield* Transaction.run(
      OperatorAudit.record({
        ...operator,
        action: "roll forward",
        subject: "topic",
        subjectId: ordersTopic,
        before: {},
        after: { ...result }
      })
    )
  }
  return result
})

/** What {@link run} needs of the database. */
export type Database = PgClient.PgClient | SqlClient.SqlClient
