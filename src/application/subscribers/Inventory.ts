/**
 * Inventory: a placed order reserves its quantities, and a cancelled or refunded order releases them.
 *
 * A sku that is not listed in `inventory_stock` is unlimited. Each sku of an order is decided by itself, first come, first served; one
 * that has run out is stored in `inventory_reservations` as `out_of_stock`.
 */
import { Array, Effect, Schema } from "effect"
import type { Envelope } from "../../brokers/Envelope.ts"
import { ordersTopic } from "../../domain/Events.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { decodeOrderEvents } from "../OrderEvents.ts"

const Reservation = Schema.Struct({
  orderId: Schema.String,
  sku: Schema.String,
  quantity: Schema.BigInt,
  status: Schema.Literals(["reserved", "out_of_stock", "released"]),
  /** Whether it was taken from the stock. A sku that was unlimited when it was reserved gives nothing back. */
  counted: Schema.Boolean
})
type Reservation = typeof Reservation.Type
const reservations = Rows.all(Reservation)
const stockOf = Rows.all(Schema.Struct({ sku: Schema.String, available: Schema.BigInt }))

/** The reservations of these orders. */
const heldBy = Effect.fnUntraced(function* (orderIds: ReadonlyArray<string>) {
  const { sql } = yield* Transaction
  return yield* reservations(sql`
    SELECT order_id::text AS "orderId", sku, quantity, status, counted FROM inventory_reservations
    WHERE order_id = ANY(${orderIds}::uuid[]) AND status = 'reserved'`)
})

/** The available quantities of these skus, of those that are listed, locked. All slices lock in the order of the skus, so two never deadlock. */
const lockStock = Effect.fnUntraced(function* (skus: ReadonlyArray<string>) {
  const { sql } = yield* Transaction
  const rows = yield* stockOf(sql`
    SELECT sku, available FROM inventory_stock WHERE sku = ANY(${skus}::text[]) ORDER BY sku FOR UPDATE`)
  return new Map(rows.map((row) => [row.sku, row.available]))
})

const store = Effect.fnUntraced(function* (
  reservations: ReadonlyArray<Reservation>,
  stock: ReadonlyMap<string, bigint>
) {
  const { sql } = yield* Transaction
  yield* sql`
    INSERT INTO inventory_reservations (order_id, sku, quantity, status, counted, created_at, updated_at)
    SELECT reservation.*, clock.now, clock.now
    FROM unnest(${reservations.map((row) => row.orderId)}::uuid[], ${reservations.map((row) => row.sku)}::text[],
                ${reservations.map((row) => row.quantity)}::int8[], ${reservations.map((row) => row.status)}::text[],
                ${reservations.map((row) => row.counted)}::bool[]) AS reservation, (SELECT clock_now() AS now) AS clock
    ON CONFLICT (order_id, sku) DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at`
  yield* sql`
    UPDATE inventory_stock AS stock SET available = left_over.available, updated_at = clock_now()
    FROM unnest(${[...stock.keys()]}::text[], ${[...stock.values()]}::int8[]) AS left_over(sku, available)
    WHERE stock.sku = left_over.sku AND stock.available <> left_over.available`
})

const handleMany = Effect.fn("Inventory.handleMany")(function* (envelopes: ReadonlyArray<Envelope>) {
  const events = yield* decodeOrderEvents(envelopes)
  const released = events.filter(({ event }) => event._tag === "OrderCancelled" || event._tag === "OrderRefunded")
  const placed = events.flatMap(({ envelope, event }) =>
    event._tag === "OrderPlaced" ? [[envelope.aggregateId, quantities(event.data.lines)] as const] : []
  )
  if (released.length + placed.length === 0) return
  const before = yield* heldBy(released.map(({ envelope }) => envelope.aggregateId))
  const stock = yield* lockStock([
    ...new Set([...before.map((row) => row.sku), ...placed.flatMap(([, wanted]) => [...wanted.keys()])])
  ])

  const asked = new Map(placed)
  const held = new Map<string, ReadonlyArray<Reservation>>(Object.entries(Array.groupBy(before, (row) => row.orderId)))
  for (const { envelope, event } of events) {
    const orderId = envelope.aggregateId
    if (event._tag === "OrderPlaced") {
      const rows = [...(asked.get(orderId) ?? [])].map(([sku, quantity]): Reservation => {
        const left = stock.get(sku)
        if (left !== undefined && left < quantity)
          return { orderId, sku, quantity, status: "out_of_stock", counted: true }
        if (left !== undefined) stock.set(sku, left - quantity)
        return { orderId, sku, quantity, status: "reserved", counted: left !== undefined }
      })
      held.set(orderId, rows)
    } else if (event._tag === "OrderCancelled" || event._tag === "OrderRefunded") {
      const rows = (held.get(orderId) ?? []).map((row): Reservation => {
        if (row.status !== "reserved") return row
        const left = stock.get(row.sku)
        if (row.counted && left !== undefined) stock.set(row.sku, left + row.quantity)
        return { ...row, status: "released" }
      })
      held.set(orderId, rows)
    }
  }
  yield* store([...held.values()].flat(), stock)
})

/** The quantity of each sku: an order may name a sku in several lines. */
const quantities = (lines: ReadonlyArray<{ readonly sku: string; readonly quantity: number }>) => {
  const sums = new Map<string, bigint>()
  for (const { quantity, sku } of lines) sums.set(sku, (sums.get(sku) ?? 0n) + BigInt(quantity))
  return sums
}

export const inventory: Subscriber = {
  name: "inventory",
  topic: ordersTopic,
  firstSight: "from-version-1",
  // No replay: it takes from a stock that comes in by hand, first come, first served. The events alone don't tell it.
  handle: (event) => handleMany([event]),
  handleMany
}
