/**
 * What consumers were told of an order, whatever its row says now. A row that was damaged, or restored by hand, may contradict it. Then the row is
 * wrong. A repair that believed it would tell a change twice, or give rightful money back.
 */
import { Effect, Schema } from "effect"
import type { OrderEvent } from "../../domain/Events.ts"
import type { OrderId, PaymentId } from "../../domain/Ids.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { CantMend } from "./Difference.ts"

type EventType = OrderEvent["_tag"]

/** The events after which an event can't follow: an order is paid, cancelled and refunded once. */
const barredBy: Readonly<Record<EventType, ReadonlyArray<EventType>>> = {
  OrderPlaced: ["OrderPlaced"],
  PaymentDeclined: ["OrderPaid", "OrderCancelled", "OrderRefunded"],
  OrderPaid: ["OrderPaid", "OrderCancelled", "OrderRefunded"],
  OrderCancelled: ["OrderPaid", "OrderCancelled", "OrderRefunded"],
  OrderRefunded: ["OrderCancelled", "OrderRefunded"]
}

const payerRow = Rows.one(Schema.Struct({ told: Schema.Boolean }))
const Told = Schema.Struct({
  types: Schema.Array(Schema.String),
  version: Schema.Int,
  /** How many versions behind the first have a type that is known. The first is OrderPlaced. */
  known: Schema.Int,
  /** The version of the order's row, and its status. */
  row: Schema.Int,
  status: Schema.String
})
type Told = typeof Told.Type
const toldRow = Rows.one(Told)

/** The types of the order's events, and the last version, written or applied. Where retention has dropped events, ledger and cursors remember. */
const toldOf = Effect.fnUntraced(function* (orderId: OrderId) {
  const { sql } = yield* Transaction
  return yield* Effect.orDie(
    toldRow(sql`
      WITH written AS MATERIALIZED (
        SELECT event_type AS type, aggregate_version AS version FROM outbox_status
        WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text),
      booked AS MATERIALIZED (
        SELECT DISTINCT CASE debit_account WHEN 'gateway' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS type
        FROM billing_ledger WHERE order_id = ${orderId}::uuid),
      told AS (
        SELECT type, version FROM written
        UNION ALL SELECT type, 0 FROM booked
        UNION ALL SELECT NULL, version FROM consumer_cursors WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text)
      SELECT coalesce(json_agg(DISTINCT type) FILTER (WHERE type IS NOT NULL), '[]') AS types, coalesce(max(version), 0)::int4 AS version,
             ((SELECT count(DISTINCT version) FROM written WHERE version > 1)
              + (SELECT count(*) FROM booked WHERE type NOT IN (SELECT type FROM written)))::int4 AS known,
             (SELECT version FROM orders WHERE id = ${orderId}::uuid) AS row,
             (SELECT status FROM orders WHERE id = ${orderId}::uuid) AS status
      FROM told`)
  )
})

/**
 * Fails where a version up to `version` is in no archive and in no ledger: it may have told of a payment. Retention forgets an old order's
 * events, and the ledger remembers what was paid, unless its entry is lost.
 */
const mustRemember = ({ known }: Told, version: number) =>
  known < version - 1
    ? Effect.fail(
        new CantMend({
          reason: "what was told of it is forgotten: the archive has dropped its events, and the ledger lacks them"
        })
      )
    : Effect.void

/**
 * Fails where the ledger has booked the payment for another order: its row was moved, and neither order may follow it. No index leads there, for
 * only such a repair asks: it reads the ledger once.
 */
export const mayFollow = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const { sql } = yield* Transaction
  const [other] = yield* Effect.orDie(
    sql`SELECT FROM billing_ledger WHERE payment_id = ${paymentId}::uuid AND order_id <> ${orderId}::uuid LIMIT 1`
  )
  if (other !== undefined) {
    return yield* new CantMend({
      reason: "the ledger has booked the payment for another order: a row is what is wrong"
    })
  }
})

/** Fails where `eventType` can't follow what was told of the order. It also fails where that is forgotten, or goes on behind `version`. The order is locked. */
export const mayTell = Effect.fnUntraced(function* (orderId: OrderId, version: number, eventType: EventType) {
  const told = yield* toldOf(orderId)
  if (told.version > version) {
    return yield* new CantMend({
      reason: `its events go on to version ${told.version}, and its row ends at ${version}: the row is what is wrong`
    })
  }
  const first = barredBy[eventType].find((type) => told.types.includes(type))
  if (first !== undefined) {
    return yield* new CantMend({
      reason:
        first === eventType && version < told.row
          ? wasDelivered(first, told.row)
          : `${first} was told of it before: its row is what is wrong`
    })
  }
  yield* mustRemember(told, version)
})

const wasDelivered = (what: string, version: number) =>
  `${what} was told of it before: set the consumers' cursors of the order to version ${version}, and take the event from the topic: docs/reconciliation.md`

/** The effects of an event, besides ledger, archive and cursors. `kind` is that of its mail. */
const effects: Readonly<
  Record<EventType, { readonly reservations?: ReadonlyArray<string>; readonly kind?: "receipt" | "refund-notice" }>
> = {
  OrderPlaced: { reservations: ["reserved", "out_of_stock", "released"] },
  PaymentDeclined: {},
  OrderPaid: { kind: "receipt" },
  OrderCancelled: { reservations: ["released"] },
  OrderRefunded: { reservations: ["released"], kind: "refund-notice" }
}

/** The mail's tasks of an order. The ids of tasks and orders are by time, so its own mail is younger. */
const hasMail = Effect.fnUntraced(function* (orderId: OrderId, kind: string) {
  const { sql } = yield* Transaction
  const [task] = yield* Effect.orDie(
    sql`
      SELECT FROM outbox_tasks
      WHERE task_id > ${orderId}::uuid AND task_type = 'email' AND payload ->> 'kind' = ${kind} AND strpos(payload ->> 'subject', ${orderId}) > 0
      LIMIT 1`
  )
  return task !== undefined
})

/** Fails where the event of this version has left an effect: it was delivered, and the books that tell of it are lost. The order is locked. */
export const mustBeUnheard = Effect.fnUntraced(function* (orderId: OrderId, version: number, eventType: EventType) {
  const { sql } = yield* Transaction
  const { kind, reservations = [] } = effects[eventType]
  const [held] = yield* Effect.orDie(
    sql`
      SELECT FROM inventory_reservations
      WHERE order_id = ${orderId}::uuid AND status = ANY (${[...reservations]}::text[]) LIMIT 1`
  )
  if (held !== undefined || (kind !== undefined && (yield* hasMail(orderId, kind)))) {
    return yield* new CantMend({ reason: wasDelivered(eventType, version) })
  }
})

/** Fails where a mail about it was asked for under another key. The order is locked. */
export const mayMail = Effect.fnUntraced(function* (
  orderId: OrderId,
  eventType: "OrderPaid" | "OrderRefunded",
  eventId: string
) {
  if (yield* hasMail(orderId, effects[eventType].kind!)) {
    return yield* new CantMend({
      reason: `a task asks for this mail under another key: set its idempotency_key to ${eventId} with psql: docs/operations.md`
    })
  }
})

/** Fails at cancelling an order that holds the money of a payment that was not declined: it was paid, whatever its row says. */
export const mayCancel = Effect.fnUntraced(function* (orderId: OrderId) {
  const { sql } = yield* Transaction
  const [kept] = yield* Effect.orDie(
    sql`
      SELECT FROM payments
      WHERE order_id = ${orderId}::uuid AND decline_reason IS NULL AND captured_minor > refunded_minor LIMIT 1`
  )
  if (kept !== undefined) {
    return yield* new CantMend({
      reason:
        "a payment of the order is captured, so the order was paid: set its status to paid with psql, and refund it by POST /orders/{id}/refund if that was meant"
    })
  }
})

/** The status that the order's events tell. */
export const toldStatus = Effect.fnUntraced(function* (orderId: OrderId) {
  const { types } = yield* toldOf(orderId)
  return types.includes("OrderRefunded") ? "refunded" : types.includes("OrderPaid") ? "paid" : "pending"
})

/** Fails at reserving for an order whose end was told, and at releasing for one whose end was not. The order is locked. */
export const mayMoveGoods = Effect.fnUntraced(function* (orderId: OrderId, move: "reserve" | "release") {
  const told = yield* toldOf(orderId)
  const { types } = told
  const hasEnded = types.includes("OrderCancelled") || types.includes("OrderRefunded")
  yield* mustRemember(told, Math.max(told.version, told.row))
  if (move === "reserve" ? hasEnded : !hasEnded) {
    return yield* new CantMend({ reason: "its events tell of another status: its row is what is wrong" })
  }
})

/** Fails where OrderPaid was told of this payment, and where nothing but the order's row says that it is cancelled. */
export const mayGiveBack = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const { sql } = yield* Transaction
  const { told } = yield* Effect.orDie(
    payerRow(sql`
      SELECT EXISTS (SELECT FROM outbox_status WHERE aggregate_type = 'Order' AND aggregate_id = ${orderId}::text AND event_type = 'OrderPaid'
                       AND data ->> 'paymentId' = ${paymentId}::text)
             OR EXISTS (SELECT FROM billing_ledger WHERE order_id = ${orderId}::uuid AND payment_id = ${paymentId}::uuid
                          AND debit_account = 'gateway') AS told`)
  )
  if (told) return yield* new CantMend({ reason: "OrderPaid was told of this payment before: a row is what is wrong" })
  const all = yield* toldOf(orderId)
  yield* mustRemember(all, Math.max(all.version, all.row))
  if (all.status === "cancelled" && !all.types.includes("OrderCancelled")) {
    return yield* new CantMend({ reason: "only its own row says that the order is cancelled: a row is what is wrong" })
  }
})
