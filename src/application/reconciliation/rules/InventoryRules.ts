/** Orders ↔ inventory: each order reserves what it has ordered, and gives it back when it ends. Stock comes in by hand, so no rule counts it. */
import { Effect, Schema } from "effect"
import { OrderId } from "../../../domain/Ids.ts"
import * as Rows from "../../../platform/Rows.ts"
import { Transaction } from "../../../platform/Transaction.ts"
import { inventory } from "../../subscribers/Inventory.ts"
import { envelopeOf } from "../Books.ts"
import { CantMend, type Found } from "../Difference.ts"
import { isGivenUp, isThrough, type SqlRule, within } from "../SqlRule.ts"
import { mayMoveGoods } from "../MayRepair.ts"

const books = "orders ↔ inventory"

const lineRows = Rows.all(
  Schema.Struct({
    sku: Schema.String,
    quantity: Schema.Int,
    unitAmountMinor: Schema.Number,
    isReserved: Schema.Boolean
  })
)

/**
 * Gives inventory's own handler the order's lines: those without a reservation as placed, or all of them as cancelled. It moves no stock: a consumer
 * that is through has moved it with its cursor, and whether there was enough at that time is told by the lost row alone.
 */
const handle = (eventType: "OrderPlaced" | "OrderCancelled") =>
  Effect.fnUntraced(function* ({ orderId }: Found) {
    const { sql } = yield* Transaction
    const rows = yield* lineRows(sql`
      SELECT l.sku, l.quantity, l.unit_amount_minor::float8 AS "unitAmountMinor",
             EXISTS (SELECT FROM inventory_reservations AS r WHERE r.order_id = l.order_id AND r.sku = l.sku) AS "isReserved"
      FROM order_lines AS l WHERE l.order_id = ${orderId}::uuid ORDER BY l.position`)
    const lines = rows
      .filter(({ isReserved }) => eventType === "OrderCancelled" || !isReserved)
      .map(({ quantity, sku, unitAmountMinor }) => ({ sku, quantity, unitAmountMinor }))
    const event = {
      eventId: orderId!,
      eventType,
      schemaVersion: 1,
      occurredAt: "2000-01-01T00:00:00.000Z",
      data:
        eventType === "OrderPlaced"
          ? { customerId: "reconciliation", lines, total: { amountMinor: 1, currency: "EUR" } }
          : { lines }
    }
    yield* mayMoveGoods(OrderId.make(orderId!), eventType === "OrderPlaced" ? "reserve" : "release")
    yield* Effect.mapError(
      inventory.handle(envelopeOf(OrderId.make(orderId!), event)),
      (error) => new CantMend({ reason: String(error) })
    )
    const [counted] = yield* sql`
      SELECT FROM inventory_reservations WHERE order_id = ${orderId}::uuid AND counted AND sku = ANY (${lines.map(({ sku }) => sku)}::text[]) LIMIT 1`
    if (counted !== undefined) {
      return yield* new CantMend({
        reason:
          "inventory has been through the order's events, so its stock may have moved before: count the goods, and set the reservation and the stock right with psql: docs/operations.md"
      })
    }
  })

/** Of the orders. */
export const inventoryRules: ReadonlyArray<SqlRule> = [
  {
    name: "reservation-missing",
    books,
    means: "goods that are sold may be sold again",
    repair: "inventory's own handler reserves the lines that have no reservation, where no stock is counted",
    find: (sql, scope) => sql`
      WITH missing AS MATERIALIZED (
        SELECT o.id, string_agg(DISTINCT l.sku, ', ') AS skus
        FROM orders AS o JOIN order_lines AS l ON l.order_id = o.id
        WHERE ${within(sql, "o.id", scope)} AND o.status IN ('pending', 'paid')
          AND NOT EXISTS (SELECT FROM inventory_reservations AS r WHERE r.order_id = o.id AND r.sku = l.sku)
          AND ${sql.literal(isThrough("inventory"))}
        GROUP BY o.id)
      SELECT id::text AS key, id::text AS id, id::text AS "orderId", NULL::text AS "paymentId",
             'a reservation of ' || left(skus, 200) AS expected, 'none, and inventory has gone through the order''s events' AS found
      FROM missing WHERE NOT ${sql.literal(isGivenUp("inventory", "missing.id", "'OrderPlaced'"))}`,
    mend: handle("OrderPlaced")
  },
  {
    name: "reservation-left-over",
    books,
    means: "goods of an ended order can't be sold",
    repair: "inventory's own handler releases them, where no stock is counted",
    find: (sql, scope) => sql`
      WITH held AS MATERIALIZED (
        SELECT o.id, o.status, string_agg(r.sku, ', ') AS skus
        FROM orders AS o JOIN inventory_reservations AS r ON r.order_id = o.id AND r.status = 'reserved'
        WHERE ${within(sql, "o.id", scope)} AND o.status IN ('cancelled', 'refunded') AND ${sql.literal(isThrough("inventory"))}
        GROUP BY o.id)
      SELECT id::text AS key, id::text AS id, id::text AS "orderId", NULL::text AS "paymentId",
             'no reservation: the order is ' || status AS expected, left(skus, 200) || ' reserved' AS found
      FROM held WHERE NOT ${sql.literal(isGivenUp("inventory", "held.id", "'OrderCancelled', 'OrderRefunded'"))}`,
    mend: handle("OrderCancelled")
  }
]

/** Of the reservations, by their order. */
export const reservationRules: ReadonlyArray<SqlRule> = [
  {
    name: "reservation-unfounded",
    books,
    means: "goods are held, or set free, that no order speaks of",
    repair: undefined,
    byHand: "count the goods, and set the reservation and the stock right with psql: docs/operations.md",
    find: (sql, scope) => sql`
      SELECT r.order_id::text AS key, r.order_id || ' ' || r.sku AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             CASE WHEN o.id IS NULL THEN 'an order ' || r.order_id
                  ELSE coalesce(lines.quantity, 0) || ' of ' || left(r.sku, 200) || ', as the order is ' || o.status END AS expected,
             r.quantity || ' ' || r.status AS found
      FROM inventory_reservations AS r LEFT JOIN orders AS o ON o.id = r.order_id
      CROSS JOIN LATERAL (SELECT sum(l.quantity) AS quantity FROM order_lines AS l WHERE l.order_id = r.order_id AND l.sku = r.sku) AS lines
      WHERE ${within(sql, "r.order_id", scope)}
        AND (o.id IS NULL OR lines.quantity IS DISTINCT FROM r.quantity OR (r.status = 'released' AND o.status IN ('pending', 'paid')))`
  }
]
