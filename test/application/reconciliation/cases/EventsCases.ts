/** Books that differ between orders and their events. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import * as Subscribed from "../../../support/Subscribed.ts"
import { cancel } from "../../World.ts"
import { brokenIn, deliver, look } from "../Books.ts"
import type { Case } from "./Case.ts"

export const eventsCases: ReadonlyArray<Case> = [
  {
    of: "an event was deleted from the queue",
    rule: "event-missing",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE orders SET status = 'cancelled', version = 2, updated_at = clock_now() WHERE id = ${pending}::uuid`
      }),
    by: "use case",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        const rows =
          yield* sql`SELECT event_type AS type, aggregate_version AS version FROM event_log WHERE aggregate_id = ${pending} ORDER BY 2`
        assert.deepStrictEqual(rows, [
          { type: "OrderPlaced", version: 1 },
          { type: "OrderCancelled", version: 2 }
        ])
      })
  },
  {
    of: "an event in the middle was deleted from the queue",
    rule: "event-missing",
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE orders SET status = 'cancelled', version = 3, updated_at = clock_now() WHERE id = ${pending}::uuid`
        yield* sql`
          INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                     occurred_at, trace_id, span_id, record_bytes, data)
          SELECT 1, ${Subscribed.newId()}::uuid, topic, 'OrderCancelled', 1, aggregate_type, aggregate_id, 3, clock_now(), trace_id, span_id, 100, '{"lines":[]}'
          FROM event_log WHERE aggregate_id = ${pending} AND aggregate_version = 1`
      }),
    by: "person"
  },
  {
    of: "an event was deleted from the archive",
    rule: "event-unarchived",
    broken: ({ paid }, sql) =>
      sql`DELETE FROM event_log WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the first event of an order was deleted from the archive, and its mail's task is gone",
    rule: "event-unarchived",
    also: ["mail-missing"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPlaced'`
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
      }),
    by: "person",
    // A lost copy puts no row in doubt.
    afterwards: () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(brokenIn(yield* look), { "event-unarchived": 1 })
      })
  },
  {
    of: "an order is cancelled by hand, without an event",
    rule: "status-unannounced",
    also: ["reservation-left-over"],
    broken: ({ pending }, sql) =>
      sql`UPDATE orders SET status = 'cancelled', updated_at = clock_now() WHERE id = ${pending}::uuid`,
    by: "person",
    afterwards: ({ pending }, sql) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* sql`SELECT FROM outbox_events`, [])
        // As the refusal says.
        yield* sql`UPDATE orders SET status = 'pending' WHERE id = ${pending}::uuid`
        yield* cancel(pending)
        yield* deliver
        assert.deepStrictEqual(brokenIn(yield* look), {})
      })
  },
  {
    of: "the row of a paid order has a version too many",
    rule: "event-missing",
    broken: ({ paid }, sql) =>
      sql`UPDATE orders SET version = version + 1, updated_at = clock_now() WHERE id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an event was published of an order that is gone",
    rule: "event-without-change",
    broken: (_, sql) =>
      sql`
        INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
                               span_id, data, broker_partition, broker_offset, published_at)
        SELECT ${Subscribed.newId()}::uuid, topic, event_type, 1, 'Order', gen_random_uuid()::text, 1, occurred_at, trace_id, span_id, data, 0, 0, published_at
        FROM event_log WHERE event_type = 'OrderPlaced' LIMIT 1`,
    by: "person"
  },
  {
    of: "the row of an archived event has another amount, and its entry is gone from the ledger",
    rule: "event-differs",
    also: ["billing-entry-missing", "revenue-differs"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          UPDATE event_log SET data = jsonb_set(data::jsonb, '{amount,amountMinor}', '90')::json
          WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "the row of an archived event has no data any more",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      sql`UPDATE event_log SET data = '{}' WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the row of an archived event has an amount that is no number",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE event_log SET data = jsonb_set(data::jsonb, '{amount,amountMinor}', '"much"')::json
        WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the row of an archived event names another customer, and its mail's task is gone",
    rule: "event-differs",
    also: ["mail-missing"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          UPDATE event_log SET data = jsonb_set(data::jsonb, '{customerId}', '"eve"')::json
          WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
      }),
    by: "person"
  },
  {
    of: "the row of an archived event names no payment of its order",
    rule: "event-differs",
    broken: ({ paid, refunded }, sql) =>
      sql`
        UPDATE event_log SET data = jsonb_set(data::jsonb, '{paymentId}', to_jsonb(${refunded.paymentId}::text))::json
        WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the row of an archived event tells of other goods",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE event_log SET data = jsonb_set(data::jsonb, '{lines,0,sku}', '"lamp"')::json
        WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPlaced'`,
    by: "person"
  },
  {
    of: "the row of a line names another sku, and so does its reservation",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`UPDATE order_lines SET sku = 'lamp' WHERE order_id = ${paid.orderId}::uuid`
        yield* sql`UPDATE inventory_reservations SET sku = 'lamp' WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "the row of an archived event has a type that is none",
    rule: "event-differs",
    also: ["status-unannounced"],
    broken: ({ paid }, sql) =>
      sql`UPDATE event_log SET event_type = 'Bogus' WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  },
  {
    of: "the row of an archived declined payment tells another reason",
    rule: "event-differs",
    broken: ({ declined }, sql) =>
      sql`
        UPDATE event_log SET data = jsonb_set(data::jsonb, '{reason}', '"no reason"')::json
        WHERE aggregate_id = ${declined} AND event_type = 'PaymentDeclined'`,
    by: "person"
  },
  {
    of: "the row of an archived cancellation has the time of another day",
    rule: "event-differs",
    broken: ({ cancelled }, sql) =>
      sql`
        UPDATE event_log SET occurred_at = occurred_at - interval '3 days' WHERE aggregate_id = ${cancelled} AND event_type = 'OrderCancelled'`,
    by: "person"
  },
  {
    of: "the row of an archived event has the time of another day",
    rule: "event-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE event_log SET occurred_at = occurred_at - interval '3 days' WHERE aggregate_id = ${paid.orderId} AND event_type = 'OrderPaid'`,
    by: "person"
  }
]
