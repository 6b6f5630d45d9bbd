/**
 * Whether what consumers were told of an order ({@link toldOf}) allows a repair. If its row contradicts that, the row is wrong. A repair that believed it
 * would tell a change twice, or give rightful money back.
 */
import { Effect, Schema } from "effect"
import type { OrderEvent } from "../../domain/Events.ts"
import type { OrderId, PaymentId } from "../../domain/Ids.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { CantMend } from "./Difference.ts"
import { type Told, toldOf } from "./Told.ts"
import { declined, mayBelieve, mayFollow, mayPay, mustBeAsked, wasDeclined } from "./ToldOfPayment.ts"

type EventType = OrderEvent["_tag"]

/** The events after which an event can't follow: an order is paid, cancelled and refunded once. */
const barredBy: Readonly<Record<EventType, ReadonlyArray<EventType>>> = {
  OrderPlaced: ["OrderPlaced"],
  PaymentDeclined: ["OrderPaid", "OrderCancelled", "OrderRefunded"],
  OrderPaid: ["OrderPaid", "OrderCancelled", "OrderRefunded"],
  OrderCancelled: ["OrderPaid", "OrderCancelled", "OrderRefunded"],
  OrderRefunded: ["OrderCancelled", "OrderRefunded"]
}

const cantMend = (reason: string) => new CantMend({ reason })

/**
 * Fails where a version up to `version` is in no archive and in no ledger: it may have told of a payment. Retention forgets an old order's
 * events, and the ledger remembers what was paid, unless its entry is lost.
 */
const mustRemember = ({ known }: Told, version: number) =>
  known < version - 1
    ? Effect.fail(
        cantMend(
          "what was told of it is forgotten: its events are in no archive any more, or there is none, and the ledger lacks them; a person decides: docs/reconciliation.md"
        )
      )
    : Effect.void

/**
 * Fails where the event of the row's last version is lost, and a repair is going to tell it: what came behind it now would stand before a gap for ever.
 * The event of a declined payment can't be told again. There is a gap in any case, and nothing waits for that.
 */
const mustBeTold = ({ isKept, known, rowVersion, status, version }: Told) =>
  isKept && version < rowVersion && !(status === "pending" && rowVersion > 1 && known >= rowVersion - 1)
    ? Effect.fail(cantMend(`its event of version ${rowVersion} is missing: repair once more when that is mended`))
    : Effect.void

/** Why an event can't be told a second time: its row's version is wrong, or the books that had it have lost it. */
const toldBefore = (type: EventType, { rowVersion, types, versions }: Told): string => {
  const version = versions[type]
  if (version !== undefined) {
    return `${type} was told of it before, with version ${version}: its row's version is wrong, set it to ${version} with psql`
  }
  const witness = types.includes(type) ? "its entry in the ledger" : "a mail or a reservation"
  return (
    `${type} was told of it before, as ${witness} says. If paid-once archive refill --dry-run finds it, set the consumers' cursors of the order to ` +
    `version ${rowVersion}, and take it from the topic: docs/reconciliation.md. Else ${witness} is what is wrong`
  )
}

/** Fails if `eventType` can't follow what was told, or if that goes on behind `version`. */
const mustFollow = Effect.fnUntraced(function* (told: Told, version: number, eventType: EventType) {
  if ((version === 0) !== (eventType === "OrderPlaced")) {
    return yield* cantMend(
      "version 1 of an order is OrderPlaced, and no other one is: its row's status, or its version, is what is wrong"
    )
  }
  if (told.version > version) {
    return yield* cantMend(
      `its events go on to version ${told.version}, and its row ends at ${version}: the row is what is wrong`
    )
  }
  const all = new Set([...told.types, ...told.effects])
  if (version === told.rowVersion) yield* mustBeTold(told)
  // The event of the row's own version: a repair tells it again.
  if (version < told.rowVersion && all.has(eventType)) return yield* cantMend(toldBefore(eventType, told))
  const first = barredBy[eventType].find((type) => all.has(type))
  if (first !== undefined) return yield* cantMend(`${first} was told of it before: its row is what is wrong`)
  if (eventType === "OrderRefunded" && !all.has("OrderPaid") && !told.isAnsweredPaid) {
    return yield* cantMend(
      "no other book tells that the order was paid: its row is what is wrong, or the ledger has lost the sale"
    )
  }
})

/** Fails where `eventType` can't follow what was told of the order. It also fails where that is forgotten, or goes on behind `version`. The order is locked. */
export const mayTell = Effect.fnUntraced(function* (orderId: OrderId, version: number, eventType: EventType) {
  const told = yield* toldOf(orderId)
  yield* mustFollow(told, version, eventType)
  yield* mustRemember(told, version)
})

/** Fails where the order's row says paid, and its refund can't be told. The gateway tells of the refund, so what is forgotten is no hindrance. That of a declined payment is not the order's. The order is locked. */
export const mayRefund = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const told = yield* toldOf(orderId)
  if (told.status !== "paid" || (yield* wasDeclined(paymentId))) return
  yield* mayPay(orderId, paymentId)
  yield* mustFollow(told, told.rowVersion, "OrderRefunded")
})

/** Fails if the order's row says that it is not paid, or not ended, and any other book tells that it is. */
const mustAgree = ({ effects, isAnsweredPaid, status, types }: Told) => {
  const all = new Set([...types, ...effects])
  const wrong =
    (status === "cancelled" || status === "pending") && (isAnsweredPaid || all.has("OrderPaid"))
      ? "paid"
      : (status === "pending" || status === "paid") && (all.has("OrderCancelled") || all.has("OrderRefunded"))
        ? "cancelled or refunded"
        : undefined
  return wrong === undefined
    ? Effect.void
    : Effect.fail(cantMend(`the order was ${wrong}, and its row says ${status}: the row is what is wrong`))
}

/** Fails where a mail about it was asked for under another key, or as one of another kind. The order is locked. */
export const mayMail = Effect.fnUntraced(function* (
  orderId: OrderId,
  eventType: "OrderPaid" | "OrderRefunded",
  eventId: string
) {
  const { mails, types } = yield* toldOf(orderId)
  const isOther = (type: string) => type !== eventType
  // An order that was refunded was paid, whatever the books have forgotten of that.
  const others = eventType === "OrderRefunded" || types.includes("OrderRefunded") ? 1 : 0
  if (mails.includes(eventType) || mails.filter(isOther).length > others) {
    return yield* cantMend(
      `a task asks for this mail under another key: set its idempotency_key to ${eventId} with psql: docs/operations.md`
    )
  }
})

/** A payment whose recovery waits for the order's event, which waits for the payment. */
const withoutRecovery =
  "one that waits for a person is settled by paid-once payments settle; so is one that recovery-missing names, too, once psql has set its status to manual; one whose row is lost comes from a backup: docs/payments.md"

const keptRows = Rows.all(Schema.Struct({ isOpen: Schema.Boolean, isGoingBack: Schema.Boolean }))

/** A payment for whose sake the order can't be cancelled, if there is one: it has money, or no outcome. */
const keptOf = Effect.fnUntraced(function* (orderId: OrderId) {
  const { sql } = yield* Transaction
  const [kept] = yield* Effect.orDie(
    keptRows(sql`
      SELECT captured_minor = 0 AS "isOpen", refund_begun_at IS NOT NULL AS "isGoingBack" FROM payments
      WHERE order_id = ${orderId}::uuid AND decline_reason IS NULL
        AND (captured_minor > refunded_minor OR status IN ('charging', 'manual') AND captured_minor = 0)
      -- A request without an answer tells of a payment, too, whose row is lost, moved or damaged. Its id is younger than the order's. Its answer may be
      -- lost, so PaymentDeclined counts as well.
      UNION ALL SELECT true, false FROM idempotency_keys AS k
      WHERE subject_id > ${orderId}::uuid AND lower(path) = ${`/orders/${orderId}/pay`} AND response_status IS NULL
        AND NOT EXISTS (SELECT FROM payments AS p WHERE p.id = k.subject_id AND p.order_id = ${orderId}::uuid AND p.captured_minor > 0)
        AND NOT EXISTS (SELECT FROM outbox_status AS e WHERE e.aggregate_type = 'Order' AND e.aggregate_id = ${orderId}::text
                        AND e.event_type = 'PaymentDeclined' AND e.data ->> 'paymentId' = k.subject_id::text)
      ORDER BY 1, 2 LIMIT 1`)
  )
  return kept
})

/**
 * Fails at cancelling an order that was paid, or may be, whatever its row says: a payment of it has its money or no outcome, or its client was told
 * so. Fails too if all its versions are known to be others.
 */
export const mayCancel = Effect.fnUntraced(function* (orderId: OrderId) {
  const kept = yield* keptOf(orderId)
  if (kept?.isGoingBack === true) {
    return yield* cantMend(
      `the money of a payment of the order is on its way back: repair once more when its refund has ended; ${withoutRecovery}`
    )
  }
  if (kept?.isOpen === true) {
    return yield* cantMend(
      `a payment of the order has no outcome yet: if nobody has cancelled the order, set its status and version back with psql; else repair once more when the payment has ended; ${withoutRecovery}`
    )
  }
  const { isAnsweredPaid, known, rowVersion } = yield* toldOf(orderId)
  if (kept !== undefined || isAnsweredPaid) {
    return yield* cantMend(
      "a payment of the order is captured, so the order was paid: set its status to paid with psql, and refund it by POST /orders/{id}/refund if that was meant"
    )
  }
  if (known >= rowVersion - 1) {
    return yield* cantMend(
      "a payment of the order was declined within seconds of the order's last change, and its event may be the lost one: if it was declined first, set the order's status to pending with psql, and cancel it by POST /orders/{id}/cancel if that was meant; if the order was cancelled first, set the payment's updated_at a minute later, and repair once more"
    )
  }
})

/**
 * Tells a person how to mend an order that only its own row calls cancelled. The service writes no status without a version: a hand was here, and no
 * other book says what it meant.
 */
export const uncancel = Effect.fnUntraced(function* (orderId: OrderId) {
  const { effects, rowVersion, types, version } = yield* toldOf(orderId)
  if (version > rowVersion) {
    return `consumers have had more of it than its row says: set its version to ${version} with psql`
  }
  const told = types.includes("OrderRefunded") ? "refunded" : types.includes("OrderPaid") ? "paid" : "pending"
  const ends = told === "pending" ? "cancel" : "refund"
  const isReleased = effects.includes("OrderCancelled") && told !== "refunded"
  return (
    (isReleased ? `if its goods were rightly released, set its version to ${rowVersion + 1} with psql; else ` : "") +
    `only its own row says that the order is cancelled: set its status to ${told} with psql` +
    (told === "refunded" ? "" : `, and ${ends} it by POST /orders/{id}/${ends} if that was meant`)
  )
})

/** Fails at reserving for an order whose end was told, and at releasing for one whose end was not. The order is locked. */
export const mayMoveGoods = Effect.fnUntraced(function* (orderId: OrderId, move: "reserve" | "release") {
  const told = yield* toldOf(orderId)
  const { types } = told
  const hasEnded = types.includes("OrderCancelled") || types.includes("OrderRefunded")
  yield* mustAgree(told)
  yield* mustRemember(told, Math.max(told.version, told.rowVersion))
  if (move === "reserve" ? hasEnded : !hasEnded) {
    return yield* cantMend("its events tell of another status: its row is what is wrong")
  }
})

/** The other books about the order of this payment, and about the payment. Fails as {@link mayResolve} says. */
const agreedOf = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  yield* mayFollow(orderId, paymentId)
  const payment = yield* mayBelieve(orderId, paymentId)
  const all = yield* toldOf(orderId)
  yield* mustAgree(all)
  const last = Math.max(all.version, all.rowVersion)
  // Released goods tell of the cancellation, too, where the archive has forgotten it. It needs a version that no other event has.
  const isCancelledTold =
    all.types.includes("OrderCancelled") || (all.effects.includes("OrderCancelled") && all.known < last - 1)
  if (all.status === "cancelled" && !isCancelledTold) {
    yield* mustBeTold(all)
    yield* mustRemember(all, last)
    return yield* cantMend("only its own row says that the order is cancelled: a row is what is wrong")
  }
  // The transaction that declines a payment answers its client. Without a key that tells of it the order's versions have to leave room for a decline.
  const isDeclinedElsewhere =
    payment.isDeclineTold ||
    (payment.hasKey
      ? payment.answer === declined
      : all.known + (all.status === "cancelled" ? 0 : all.lateDeclines) <= last - 1)
  if (payment.wasDeclined && !isDeclinedElsewhere) {
    return yield* cantMend(
      "only its own row says that the payment was declined: set it back to manual with psql, and look with paid-once payments check: docs/payments.md"
    )
  }
  // Money that goes back has no event.
  if (all.status === "pending" && !payment.wasDeclined) yield* mustBeTold(all)
  return { ...all, ...payment }
})

/**
 * Fails if a book contradicts the rows of the order and of its payment, or if the order's row alone says that it is cancelled. Then no outcome of the
 * payment is looked for, and none is recorded.
 */
export const mayResolve = (orderId: OrderId, paymentId: PaymentId) => Effect.asVoid(agreedOf(orderId, paymentId))

/** Fails as {@link mayResolve} does. It also fails if what was told of the order is forgotten, or if nobody knows who asked for the payment. */
export const mayGiveBack = Effect.fnUntraced(function* (orderId: OrderId, paymentId: PaymentId) {
  const all = yield* agreedOf(orderId, paymentId)
  yield* mustBeAsked(all)
  if (all.status === "cancelled" && all.effects.includes("OrderCancelled")) return
  yield* mustRemember(all, Math.max(all.version, all.rowVersion))
})
