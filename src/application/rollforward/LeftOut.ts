/**
 * Orders that no program can roll forward: the topic tells another history of them than the database, or an incomplete one.
 *
 * The database's history goes on. Its next event gets a version behind all that the topic has, and the consumers' cursors go there with the order. So they
 * take no event of the other history, and the next one of ours is the next one for them, as for other readers of the topic.
 */
import { Effect } from "effect"
import { orderAggregate } from "../../domain/Events.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { OrderRecord } from "./TopicRecords.ts"

/** An order, and the events of the topic that it is not given. */
export interface LeftOut {
  readonly orderId: string
  /** `collision`: it has used a version for another event. `gap`: the topic has lost an event before these, or the first of them can't be read. */
  readonly why: "collision" | "gap"
  readonly events: ReadonlyArray<OrderRecord>
}

/** Decides for all these orders in one transaction, each with an entry in the audit. */
export const decide = Effect.fnUntraced(function* (
  orders: ReadonlyArray<LeftOut>,
  consumers: ReadonlyArray<string>,
  operator: OperatorAudit.Operator
) {
  const { sql } = yield* Transaction
  const events = orders.flatMap(({ events, why }) => events.map(({ stored }) => ({ ...stored, why })))
  yield* sql`
    INSERT INTO left_out_events (event_id, event_type, order_id, order_version, broker_partition, broker_offset, why, left_out_at)
    SELECT r.*, clock_now()
    FROM unnest(${events.map(({ eventId }) => eventId)}::uuid[], ${events.map(({ eventType }) => eventType)}::text[],
                ${events.map(({ aggregateId }) => aggregateId)}::uuid[], ${events.map(({ aggregateVersion }) => aggregateVersion)}::int4[],
                ${events.map(({ partition }) => partition)}::int4[], ${events.map(({ offset }) => offset)}::int8[],
                ${events.map(({ why }) => why)}::text[]) AS r
    ON CONFLICT DO NOTHING`
  const ids = orders.map(({ orderId }) => orderId)
  const lasts = orders.map(({ events }) => Math.max(...events.map(({ stored }) => stored.aggregateVersion)))
  // A gap tells that these versions had no effect. The order's own have one: what a consumer has not read of them, reconciliation makes good.
  yield* sql`
    WITH target AS MATERIALIZED (
      SELECT name, r.id, r.version, greatest(c.version, o.version, 0) AS was
      FROM unnest(${[...consumers]}::text[]) AS name CROSS JOIN unnest(${ids}::text[], ${lasts}::int4[]) AS r(id, version)
      LEFT JOIN consumer_cursors AS c ON c.consumer_name = name AND c.aggregate_id = r.id AND c.aggregate_type = ${orderAggregate}
      LEFT JOIN orders AS o ON o.id = r.id::uuid
    ), gaps AS (
      INSERT INTO consumer_gaps (consumer_name, aggregate_id, aggregate_type, after_version, until_version)
      SELECT name, id, ${orderAggregate}, was, version FROM target WHERE was < version
      ON CONFLICT DO NOTHING
    )
    INSERT INTO consumer_cursors AS c (consumer_name, aggregate_id, aggregate_type, version)
    SELECT name, id, ${orderAggregate}, version FROM target
    ON CONFLICT (consumer_name, aggregate_id, aggregate_type) DO UPDATE SET version = excluded.version WHERE c.version < excluded.version`
  yield* sql`
    UPDATE orders AS o SET version = r.version FROM unnest(${ids}::uuid[], ${lasts}::int4[]) AS r(id, version)
    WHERE o.id = r.id AND o.version < r.version`
  for (const { events, orderId, why } of orders) {
    yield* OperatorAudit.record({
      ...operator,
      action: "leave events out",
      subject: "order",
      subjectId: orderId,
      before: {},
      after: { why, events: events.map(({ stored }) => stored.eventId) }
    })
  }
})
