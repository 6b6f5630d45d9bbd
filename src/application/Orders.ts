/**
 * The orders: read for anyone, changed only in a transaction and only together with the events that announce the change.
 */
import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { type OrderEvent, orderAggregate, ordersTopic, schemaVersions } from "../domain/Events.ts"
import { CustomerId, OrderId, type PaymentId } from "../domain/Ids.ts"
import { AmountMinor, Currency } from "../domain/Money.ts"
import { type Change, type Order, OrderStatus, StoredStatus } from "../domain/Order.ts"
import { OrderLine } from "../domain/OrderLines.ts"
import { type AggregateRef, type EventRefused, type NewEvent, Outbox } from "../outbox/Outbox.ts"
import * as Pages from "../platform/Pages.ts"
import * as Rows from "../platform/Rows.ts"
import * as Traced from "../platform/Traced.ts"
import { Transaction } from "../platform/Transaction.ts"

/** An order as lists show it, without its lines: a page of them stays small. Amounts in minor units, times in ISO 8601 (UTC). */
export const OrderSummary = Schema.Struct({
  id: OrderId,
  customerId: CustomerId,
  currency: Currency,
  status: OrderStatus,
  version: Schema.Int,
  totalAmountMinor: AmountMinor,
  createdAt: Schema.String,
  updatedAt: Schema.String
}).annotate({ identifier: "OrderSummary" })
export type OrderSummary = typeof OrderSummary.Type

const { createdAt, updatedAt, ...beforeLines } = OrderSummary.fields

/** An order as readers see it: an {@link OrderSummary} with its lines. */
export const OrderView = Schema.Struct({
  ...beforeLines,
  lines: Schema.Array(OrderLine),
  createdAt,
  updatedAt
}).annotate({ identifier: "Order" })
export type OrderView = typeof OrderView.Type

/** There is no order with this id. */
export class OrderNotFound extends Schema.TaggedError<OrderNotFound>()("OrderNotFound", { orderId: OrderId }) {
  override get message() {
    return `there is no order ${this.orderId}`
  }
}

/** A page of orders, newest first. `nextCursor` is null on the last page. */
export interface OrderPage {
  readonly items: ReadonlyArray<OrderSummary>
  readonly nextCursor: OrderId | null
}

/** A locked order, with its lines and times: enough to compute its view after a change. */
export interface LockedOrder {
  readonly order: Order
  readonly lines: ReadonlyArray<OrderLine>
  readonly createdAt: string
  /** When it was locked, by the database's clock. */
  readonly at: string
}

/** The view's JSON, as answers have it. A view is its own encoding, and was checked when its row was decoded. */
export const encodeView = (view: OrderView): string => JSON.stringify(view)

/** The order's view once `change` is saved with `at`. */
export const viewAfter = ({ at, createdAt, lines }: LockedOrder, { events, order }: Change): OrderView => ({
  ...order,
  version: order.version + events.length,
  lines,
  createdAt,
  updatedAt: at
})

/** See {@link Orders}. */
export interface OrdersService {
  /**
   * Stores the changed order with its events, in one statement.
   *
   * The order was read with {@link OrdersService.lock} in this transaction. Its version can't have changed since, so another version is a
   * defect. `at` is when the change happened, by the database's clock ({@link LockedOrder}); by default it is now.
   */
  readonly save: (change: Change, at?: string) => Effect.Effect<void, EventRefused, Transaction>
  /** Stores a new order with its lines and events, in one statement. Returns its view. */
  readonly place: (
    change: Change,
    lines: ReadonlyArray<OrderLine>
  ) => Effect.Effect<OrderView, EventRefused, Transaction>
  /** Reads the order and locks its row until the transaction ends: changes of one order happen one after another. */
  readonly lock: (id: OrderId) => Effect.Effect<Order, OrderNotFound, Transaction>
  /** {@link lock}, with the order's lines and times. */
  readonly lockWhole: (id: OrderId) => Effect.Effect<LockedOrder, OrderNotFound, Transaction>
  /** {@link lockWhole}, of the order that the payment is for. Undefined where there is no such payment. */
  readonly lockOfPayment: (id: PaymentId) => Effect.Effect<LockedOrder | undefined, never, Transaction>
  /** Reads the order: inside a transaction as it stands there, else as it was last committed. */
  readonly get: (id: OrderId) => Effect.Effect<OrderView, OrderNotFound>
  /** {@link get}, without the order's lines. */
  readonly summary: (id: OrderId) => Effect.Effect<OrderSummary, OrderNotFound>
  /** At most `limit` orders older than `cursor`, newest first, without their lines. */
  readonly list: (filter: {
    readonly status: Option.Option<OrderStatus>
    readonly cursor: Option.Option<OrderId>
    readonly limit: number
  }) => Effect.Effect<OrderPage>
}

/** The format of times in the API and in events. */
const isoFormat = `YYYY-MM-DD"T"HH24:MI:SS.MS"Z"`

const OrderRow = Schema.Struct({
  id: OrderId,
  customerId: CustomerId,
  currency: Currency,
  status: StoredStatus,
  version: Schema.Int,
  totalAmountMinor: AmountMinor
})
const firstOrder = Rows.first(OrderRow)

/** A {@link LockedOrder} as a row. */
const LockedOrderRow = Schema.Struct({
  ...OrderRow.fields,
  lines: Schema.Array(OrderLine),
  createdAt: Schema.String,
  at: Schema.String
})
const firstLocked = Rows.first(LockedOrderRow)

const lockedOrderOf = ({ at, createdAt, lines, ...order }: typeof LockedOrderRow.Type): LockedOrder => ({
  order,
  lines,
  createdAt,
  at
})

/** The lines of the order with the alias `o`, as JSON. */
const linesSql = `
  (SELECT json_agg(json_build_object('sku', l.sku, 'quantity', l.quantity, 'unitAmountMinor', l.unit_amount_minor) ORDER BY l.position)
   FROM order_lines AS l WHERE l.order_id = o.id)`

/** The columns of a {@link LockedOrderRow}, of the orders' alias `o`. */
const lockedOrderColumns = `
  o.id, o.customer_id AS "customerId", o.currency, o.status, o.version, o.total_amount_minor::float8 AS "totalAmountMinor",
  ${linesSql} AS lines,
  to_char(o.created_at AT TIME ZONE 'UTC', '${isoFormat}') AS "createdAt", to_char(clock_now() AT TIME ZONE 'UTC', '${isoFormat}') AS at`
const firstView = Rows.first(OrderView)
const firstSummary = Rows.first(OrderSummary)
const allSummaries = Rows.all(OrderSummary)

export const aggregateOf = (id: OrderId): AggregateRef => ({
  topic: ordersTopic,
  aggregateType: orderAggregate,
  aggregateId: id
})

export const toNewEvent = (event: OrderEvent): NewEvent => ({
  eventType: event._tag,
  schemaVersion: schemaVersions[event._tag],
  data: event.data
})

/**
 * The statuses `paying` and `refunding` are derived and not stored. The order has a payment in progress, or one with an unknown outcome
 * (`manual`). Null for an order without such a payment: one whose captured payment is disputed stays paid. A declined payment does not count: it
 * never pays its order.
 */
const underWaySql = `
  (CASE WHEN o.status = 'pending' AND p.status IN ('charging', 'manual') THEN 'paying'
        WHEN o.status = 'paid' AND p.status IN ('refunding', 'manual') AND p.refund_begun_at IS NOT NULL THEN 'refunding' END)`

export class Orders extends Context.Service<Orders, OrdersService>()("paid-once/application/Orders") {
  static readonly layer: Layer.Layer<Orders, never, Outbox | SqlClient.SqlClient> = Layer.effect(
    Orders,
    Effect.gen(function* () {
      const outbox = yield* Outbox
      const client = yield* SqlClient.SqlClient

      /** Runs the statement that writes the order's row, with the events. */
      const withEvents = <Row extends { readonly version: number }>(
        { events, order }: Change,
        write: Statement.Statement<Row>,
        also?: Parameters<typeof outbox.save>[3]
      ) =>
        outbox
          .save(aggregateOf(order.id), [toNewEvent(events[0]), ...events.slice(1).map(toNewEvent)], write, also)
          .pipe(Effect.catchTag("NothingWritten", Effect.die))

      const save = Traced.fn("Orders.save")(function* (change: Change, at?: string) {
        const { sql } = yield* Transaction
        const { events, order } = change
        // oxlint-disable-next-line paid-once/decoded-rows -- Outbox.save runs it, and its row is not read
        const update = sql<{ readonly version: number }>`
          UPDATE orders SET status = ${order.status}, version = version + ${events.length}::int4,
                            updated_at = coalesce(${at ?? null}::timestamptz, clock_now())
          WHERE id = ${order.id}::uuid AND version = ${order.version}::int4
          RETURNING version`
        yield* withEvents(change, update)
      })

      const place = Traced.fn("Orders.place")(function* (change: Change, lines: ReadonlyArray<OrderLine>) {
        const { sql } = yield* Transaction
        const { events, order } = change
        // oxlint-disable-next-line paid-once/decoded-rows -- Outbox.save runs it, and a decoder of its text would check nothing
        const insert = sql<{ readonly version: number; readonly at: string }>`
          INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
          SELECT ${order.id}::uuid, ${order.customerId}, ${order.currency}, ${order.status}, ${events.length}::int4,
                 ${BigInt(order.totalAmountMinor)}, clock.now, clock.now
          FROM (SELECT clock_now() AS now) AS clock
          RETURNING version, to_char(created_at AT TIME ZONE 'UTC', ${sql.literal(`'${isoFormat}'`)}) AS at`
        const { at } = yield* withEvents(change, insert, (written) => [
          sql`
            INSERT INTO order_lines (order_id, position, sku, quantity, unit_amount_minor)
            SELECT ${order.id}::uuid, line.position - 1, line.sku, line.quantity, line.unit_amount_minor
            FROM ${written}, unnest(${lines.map((line) => line.sku)}::text[], ${lines.map((line) => line.quantity)}::int4[],
                        ${lines.map((line) => BigInt(line.unitAmountMinor))}::int8[])
                   WITH ORDINALITY AS line(sku, quantity, unit_amount_minor, position)`
        ])
        return viewAfter({ order, lines, createdAt: at, at }, change)
      })

      const lock = Traced.fn("Orders.lock")(function* (id: OrderId) {
        const { sql } = yield* Transaction
        const order = yield* Effect.orDie(
          firstOrder(sql`
            SELECT id, customer_id AS "customerId", currency, status, version, total_amount_minor::float8 AS "totalAmountMinor"
            FROM orders WHERE id = ${id}::uuid FOR UPDATE`)
        )
        return order ?? (yield* new OrderNotFound({ orderId: id }))
      })

      const locking = (sql: Statement.Constructor, id: Statement.Fragment) =>
        Effect.map(
          Effect.orDie(
            firstLocked(sql`
              SELECT ${sql.literal(lockedOrderColumns)} FROM orders AS o WHERE o.id = ${id} FOR UPDATE OF o`)
          ),
          (row) => (row === undefined ? undefined : lockedOrderOf(row))
        )

      const lockWhole = Traced.fn("Orders.lockWhole")(function* (id: OrderId) {
        const { sql } = yield* Transaction
        return (yield* locking(sql, sql`${id}::uuid`)) ?? (yield* new OrderNotFound({ orderId: id }))
      })

      const lockOfPayment = Traced.fn("Orders.lockOfPayment")(function* (id: PaymentId) {
        const { sql } = yield* Transaction
        return yield* locking(sql, sql`(SELECT order_id FROM payments WHERE id = ${id}::uuid)`)
      })

      const underWay = client.literal(underWaySql)
      const selectWith = (more: string) =>
        client.literal(`
        SELECT o.id, o.customer_id AS "customerId", o.currency, o.version,
               coalesce(${underWaySql}, o.status) AS status,
               o.total_amount_minor::float8 AS "totalAmountMinor",
               to_char(o.created_at AT TIME ZONE 'UTC', '${isoFormat}') AS "createdAt",
               to_char(o.updated_at AT TIME ZONE 'UTC', '${isoFormat}') AS "updatedAt"${more}
        FROM orders AS o
        LEFT JOIN payments AS p ON p.order_id = o.id AND p.status IN ('charging', 'refunding', 'manual') AND p.decline_reason IS NULL`)
      const selectSummary = selectWith("")
      const selectView = selectWith(`, ${linesSql} AS lines`)

      const get = Traced.fn("Orders.get")(function* (id: OrderId) {
        const view = yield* Effect.orDie(firstView(client`${selectView} WHERE o.id = ${id}::uuid`))
        return view ?? (yield* new OrderNotFound({ orderId: id }))
      })

      const summary = Traced.fn("Orders.summary")(function* (id: OrderId) {
        const found = yield* Effect.orDie(firstSummary(client`${selectSummary} WHERE o.id = ${id}::uuid`))
        return found ?? (yield* new OrderNotFound({ orderId: id }))
      })

      const list = Traced.fn("Orders.list")(function* (filter: Parameters<OrdersService["list"]>[0]) {
        const isDerived = Option.exists(filter.status, (status) => status === "paying" || status === "refunding")
        // A derived status belongs to few of the paid or pending orders: their payments under way give the page in its order.
        const id = client.literal(isDerived ? "p.order_id" : "o.id")
        const conditions = [
          // Of a stored status, the index on (status, id) gives the page in its order.
          ...Option.toArray(filter.status).map((status) =>
            isDerived
              ? client`p.order_id IS NOT NULL AND ${underWay} = ${status}`
              : client`o.status = ${status} AND ${underWay} IS NULL`
          ),
          ...Option.toArray(filter.cursor).map((cursor) => client`${id} < ${cursor}::uuid`)
        ]
        const found = yield* Effect.orDie(
          allSummaries(client`
            ${selectSummary} ${conditions.length === 0 ? client`` : client`WHERE ${client.and(conditions)}`}
            ORDER BY ${id} DESC LIMIT ${filter.limit + 1}`)
        )
        return Pages.page(found, filter.limit)
      })

      return Orders.of({ save, place, lock, lockWhole, lockOfPayment, get, summary, list })
    })
  )
}
