/**
 * Inventory: an order that is placed reserves what it asks for; one that is cancelled or refunded gives it back.
 *
 * A sku that is not listed in `inventory_stock` is unlimited. What is not there any more is a decision like any other, and stands
 * in `inventory_reservations` as `out_of_stock`: each sku of an order is decided by itself, first come, first served.
 */
import { Effect } from "effect"
import { ordersTopic } from "../../domain/Events.ts"
import type { OrderLine } from "../../domain/Order.ts"
import type { Subscriber } from "../../messaging/inbox/ApplySlice.ts"
import { Transaction } from "../../platform/database/Transaction.ts"
import { decodeOrderEvent } from "../OrderEvents.ts"

/** One statement for all lines. Stock is locked in the order of its skus, so that two orders can't wait for each other. */
const reserve = Effect.fnUntraced(function* (orderId: string, lines: ReadonlyArray<OrderLine>) {
  const { sql } = yield* Transaction
  yield* sql`
    WITH wanted AS (
      SELECT sku, sum(quantity)::int8 AS quantity
      FROM unnest(${lines.map((line) => line.sku)}::text[], ${lines.map((line) => line.quantity)}::int4[]) AS line(sku, quantity)
      GROUP BY sku
    ), listed AS (
      SELECT stock.sku FROM inventory_stock AS stock JOIN wanted USING (sku) ORDER BY stock.sku FOR UPDATE OF stock
    ), taken AS (
      UPDATE inventory_stock AS stock SET available = stock.available - wanted.quantity, updated_at = clock_now()
      FROM wanted JOIN listed USING (sku)
      WHERE stock.sku = wanted.sku AND stock.available >= wanted.quantity
      RETURNING stock.sku
    )
    INSERT INTO inventory_reservations (order_id, sku, quantity, status, counted, created_at, updated_at)
    SELECT ${orderId}::uuid, wanted.sku, wanted.quantity,
           CASE WHEN listed.sku IS NULL OR taken.sku IS NOT NULL THEN 'reserved' ELSE 'out_of_stock' END,
           listed.sku IS NOT NULL, clock.now, clock.now
    FROM wanted LEFT JOIN listed USING (sku) LEFT JOIN taken USING (sku), (SELECT clock_now() AS now) AS clock`
})

const release = Effect.fnUntraced(function* (orderId: string) {
  const { sql } = yield* Transaction
  yield* sql`
    WITH released AS (
      UPDATE inventory_reservations SET status = 'released', updated_at = clock_now()
      WHERE order_id = ${orderId}::uuid AND status = 'reserved'
      RETURNING sku, quantity, counted
    ), listed AS (
      SELECT stock.sku FROM inventory_stock AS stock JOIN released USING (sku) WHERE released.counted
      ORDER BY stock.sku FOR UPDATE OF stock
    )
    UPDATE inventory_stock AS stock SET available = stock.available + released.quantity, updated_at = clock_now()
    FROM released JOIN listed USING (sku) WHERE stock.sku = released.sku`
})

export const inventory: Subscriber = {
  name: "inventory",
  topic: ordersTopic,
  handle: Effect.fn("Inventory.handle")(function* (envelope) {
    const event = yield* decodeOrderEvent(envelope)
    switch (event._tag) {
      case "OrderPlaced":
        return yield* reserve(envelope.aggregateId, event.data.lines)
      case "OrderCancelled":
      case "OrderRefunded":
        return yield* release(envelope.aggregateId)
      case "OrderPaid":
      case "PaymentDeclined":
        return
    }
  })
}
