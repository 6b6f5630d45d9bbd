/** Writes what events tell of orders and payments that the database has lost, and the events into the archive. */
import { Effect } from "effect"
import type { OrderEvent } from "../../domain/Events.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { OrderRecord } from "./TopicRecords.ts"

/** An event that the database has lost. */
export interface Lost extends OrderRecord {
  readonly event: OrderEvent
}

/** The events leave no method of payment. It is asked for by no one but a charge, and these payments are charged. */
const unknownMethod = "unknown (rolled forward)"

type Of<Tag extends OrderEvent["_tag"]> = Lost & { readonly event: Extract<OrderEvent, { readonly _tag: Tag }> }

const only = <Tag extends OrderEvent["_tag"]>(events: ReadonlyArray<Lost>, ...tags: ReadonlyArray<Tag>) =>
  events.filter((one): one is Of<Tag> => (tags as ReadonlyArray<string>).includes(one.event._tag))

const idsOf = (events: ReadonlyArray<Lost>) => events.map(({ stored }) => stored.aggregateId)
const timesOf = (events: ReadonlyArray<Lost>) => events.map(({ stored }) => stored.occurredAt)

const place = Effect.fnUntraced(function* (events: ReadonlyArray<Of<"OrderPlaced">>) {
  if (events.length === 0) return
  const { sql } = yield* Transaction
  const totals = events.map(({ event }) => event.data.total)
  yield* sql`
    INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
    SELECT r.id, r.customer, r.currency, 'pending', 1, r.total, r.at, r.at
    FROM unnest(${idsOf(events)}::uuid[], ${events.map(({ event }) => event.data.customerId)}::text[],
                ${totals.map(({ currency }) => currency)}::text[], ${totals.map(({ amountMinor }) => String(amountMinor))}::text[]::int8[],
                ${timesOf(events)}::text[]::timestamptz[]) AS r(id, customer, currency, total, at)`
  const lines = events.flatMap(({ event, stored }) =>
    event.data.lines.map((line, position) => ({ ...line, position, order: stored.aggregateId }))
  )
  yield* sql`
    INSERT INTO order_lines (order_id, position, sku, quantity, unit_amount_minor)
    SELECT * FROM unnest(${lines.map(({ order }) => order)}::uuid[], ${lines.map(({ position }) => position)}::int4[],
                         ${lines.map(({ sku }) => sku)}::text[], ${lines.map(({ quantity }) => quantity)}::int4[],
                         ${lines.map(({ unitAmountMinor }) => String(unitAmountMinor))}::text[]::int8[])`
})

/** A declined payment changes no status. */
const statuses = { OrderPaid: "paid", OrderCancelled: "cancelled", OrderRefunded: "refunded", PaymentDeclined: "" }

const move = Effect.fnUntraced(function* (
  events: ReadonlyArray<Of<"OrderPaid" | "OrderCancelled" | "OrderRefunded" | "PaymentDeclined">>
) {
  if (events.length === 0) return
  const { sql } = yield* Transaction
  const moved = yield* sql`
    UPDATE orders AS o SET status = coalesce(nullif(r.status, ''), o.status), version = r.version, updated_at = r.at
    FROM unnest(${idsOf(events)}::uuid[], ${events.map(({ event }) => statuses[event._tag])}::text[],
                ${events.map(({ stored }) => stored.aggregateVersion)}::int4[], ${timesOf(events)}::text[]::timestamptz[]) AS r(id, status, version, at)
    WHERE o.id = r.id AND o.version = r.version - 1 RETURNING 1`
  // Compared before. So another process has changed one meanwhile, and nothing of these is written.
  if (moved.length !== events.length)
    return yield* Effect.die(new Error("an order was changed meanwhile: stop the service"))
})

const payments = { OrderPaid: "captured", OrderRefunded: "refunded", PaymentDeclined: "declined" }

const pay = Effect.fnUntraced(function* (events: ReadonlyArray<Of<"OrderPaid" | "OrderRefunded" | "PaymentDeclined">>) {
  if (events.length === 0) return
  const { sql } = yield* Transaction
  // A payment of the backup may be under way there: its recovery would announce the outcome a second time.
  yield* sql`
    INSERT INTO payments AS p (id, order_id, status, payment_method, amount_minor, currency, captured_minor, refunded_minor, decline_reason,
                               leased_until, created_at, updated_at, captured_at, refund_begun_at, refunded_at)
    SELECT new.id, o.id, new.status, ${unknownMethod}, o.total_amount_minor, o.currency,
           CASE WHEN new.status = 'declined' THEN 0 ELSE o.total_amount_minor END,
           CASE WHEN new.status = 'refunded' THEN o.total_amount_minor ELSE 0 END, nullif(new.reason, ''),
           new.at, new.at, new.at, CASE WHEN new.status <> 'declined' THEN new.at END,
           CASE WHEN new.status = 'refunded' THEN new.at END, CASE WHEN new.status = 'refunded' THEN new.at END
    FROM unnest(${idsOf(events)}::uuid[], ${events.map(({ event }) => event.data.paymentId)}::uuid[],
                ${events.map(({ event }) => payments[event._tag])}::text[],
                ${events.map(({ event }) => (event._tag === "PaymentDeclined" ? event.data.reason : ""))}::text[],
                ${timesOf(events)}::text[]::timestamptz[]) AS new(order_id, id, status, reason, at)
    JOIN orders AS o ON o.id = new.order_id
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, captured_minor = excluded.captured_minor, refunded_minor = excluded.refunded_minor,
        decline_reason = excluded.decline_reason, updated_at = excluded.updated_at, captured_at = coalesce(p.captured_at, excluded.captured_at),
        refund_begun_at = coalesce(p.refund_begun_at, excluded.refund_begun_at), refunded_at = excluded.refunded_at`
})

/** Writes the next events of orders, at most one of each. Each order has to be at the version before. */
export const write = Effect.fnUntraced(function* (events: ReadonlyArray<Lost>) {
  yield* place(only(events, "OrderPlaced"))
  yield* move(only(events, "OrderPaid", "OrderCancelled", "OrderRefunded", "PaymentDeclined"))
  yield* pay(only(events, "OrderPaid", "OrderRefunded", "PaymentDeclined"))
})
