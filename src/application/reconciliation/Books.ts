/**
 * The acts of repairs, in the transaction that is open. Each goes through the functions of the domain and the services of the use cases. Money moves
 * only through a payment's recovery, under the payment's own keys.
 */
import { Effect, Result, Schema } from "effect"
import { Envelope } from "../../brokers/Envelope.ts"
import { orderAggregate, type OrderEvent } from "../../domain/Events.ts"
import { OrderId, PaymentId } from "../../domain/Ids.ts"
import * as Order from "../../domain/Order.ts"
import { Outbox } from "../../outbox/Outbox.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { Idempotency } from "../Idempotency.ts"
import { aggregateOf, encodeView, type LockedOrder, Orders, toNewEvent, viewAfter } from "../Orders.ts"
import { PaymentOutcomes } from "../PaymentOutcomes.ts"
import { Payments } from "../Payments.ts"
import { paymentRecover, recoveryKeyOf } from "../tasks/PaymentRecover.ts"
import { CantMend } from "./Difference.ts"
import { mayCancel, mayGiveBack, mayResolve, mayTell, uncancel } from "./MayRepair.ts"
import { mayFollow, mayHavePaid, mayPay } from "./ToldOfPayment.ts"

const cantMend = (reason: string) => new CantMend({ reason })

const firstPayment = Rows.first(Schema.Struct({ id: PaymentId }))
const firstEnvelope = Rows.first(Schema.Struct({ envelope: Envelope }))

/** The event that announces the order's status, as the use case would have written it. */
const announcementOf = (
  { lines, order }: LockedOrder,
  paymentId: PaymentId | undefined
): Result.Result<OrderEvent, CantMend> => {
  const eventOf = (change: Result.Result<Order.Change, Error>) =>
    Result.mapBoth(change, { onSuccess: ({ events }) => events[0], onFailure: ({ message }) => cantMend(message) })
  switch (order.status) {
    case "pending": {
      const { currency, customerId, id } = order
      return order.version === 1
        ? eventOf(Result.mapError(Order.place({ id, customerId, currency, lines }), Error))
        : Result.fail(cantMend("no event makes an order pending again: take its row from a backup, docs/restore.md"))
    }
    case "cancelled":
      return eventOf(Order.cancel({ ...order, status: "pending" }, lines))
    case "paid":
    case "refunded":
      if (paymentId === undefined) return Result.fail(cantMend(`no payment says that the order is ${order.status}`))
      return order.status === "paid"
        ? eventOf(Order.markPaid({ ...order, status: "pending" }, paymentId))
        : eventOf(Order.markRefunded({ ...order, status: "paid" }, paymentId))
  }
}

/** The services of the use cases, as repairs need them. */
export const make = Effect.gen(function* () {
  const idempotency = yield* Idempotency
  const orders = yield* Orders
  const outbox = yield* Outbox
  const outcomes = yield* PaymentOutcomes
  const payments = yield* Payments
  const tasks = yield* Tasks

  const lockedOf = Effect.fnUntraced(function* (id: PaymentId) {
    return (yield* orders.lockOfPayment(id)) ?? (yield* cantMend("the payment is gone"))
  })

  /** The order takes the step that its payment has taken before it. */
  const follow = (move: typeof Order.markPaid) =>
    Effect.fnUntraced(function* (id: PaymentId): Effect.fn.Return<void, CantMend, Transaction> {
      const locked = yield* lockedOf(id)
      yield* mayFollow(locked.order.id, id)
      yield* (move === Order.markPaid ? mayHavePaid : mayPay)(locked.order.id, id)
      const change = yield* Effect.fromResult(
        Result.mapError(move(locked.order, id), ({ message }) => cantMend(message))
      )
      yield* mayTell(locked.order.id, locked.order.version, change.events[0]._tag)
      yield* Effect.orDie(orders.save(change, locked.at))
      // The request that began the payment may have no answer yet.
      if (change.order.status === "paid") {
        yield* idempotency.answer(id, { status: 200, body: encodeView(viewAfter(locked, change)) })
      }
    })

  /** The payment that bears the status of a paid or refunded order. */
  const payerOf = Effect.fnUntraced(function* ({ order: { id, status } }: LockedOrder) {
    const { sql } = yield* Transaction
    return (yield* Effect.orDie(
      firstPayment(sql`
        SELECT id FROM payments
        WHERE order_id = ${id}::uuid AND decline_reason IS NULL AND captured_minor > 0
          AND (status = 'refunded') = ${status === "refunded"} ORDER BY id LIMIT 1`)
    ))?.id
  })

  const wholeOf = (orderId: string) =>
    Effect.catchTag(orders.lockWhole(OrderId.make(orderId)), "OrderNotFound", ({ message }) =>
      Effect.fail(cantMend(message))
    )
  const announcement = Effect.fnUntraced(function* (locked: LockedOrder) {
    const payer = yield* payerOf(locked)
    if (payer !== undefined) {
      yield* mayFollow(locked.order.id, payer)
      yield* (locked.order.status === "paid" ? mayHavePaid : mayPay)(locked.order.id, payer)
    }
    return yield* Effect.fromResult(announcementOf(locked, payer))
  })

  return {
    markPaid: follow(Order.markPaid),
    markRefunded: follow(Order.markRefunded),

    /** The money of a capture goes back. */
    giveBack: Effect.fnUntraced(function* (id: PaymentId) {
      const payment = yield* Effect.orDie(payments.lock(id))
      yield* mayGiveBack(payment.orderId, id)
      yield* payments.move(payment, { to: "refunding" })
      yield* tasks.enqueue(paymentRecover, { paymentId: id }, { idempotencyKey: recoveryKeyOf(id, "refund") })
    }),

    /**
     * The payment gets a recovery again. A recovery that has ended without an outcome does not run anew: a person takes over. No money moves
     * because of one row: a charge needs the key of the request that asked for it, and the refund of a paid order is a person's decision.
     */
    takeUp: Effect.fnUntraced(function* (id: PaymentId) {
      const { orderId, status, wasDeclined } = yield* Effect.orDie(payments.lock(id))
      const phase = status === "refunding" ? "refund" : "charge"
      const { status: ordered } = yield* Effect.orDie(orders.lock(orderId))
      if (phase === "refund" && ordered !== "cancelled" && !wasDeclined) {
        return yield* cantMend(
          "only the payment's row asks for a refund: set it back to captured with psql (status, and refund_begun_at to NULL), and refund the order if that was asked for: docs/operations.md"
        )
      }
      yield* (phase === "refund" ? mayGiveBack : mayResolve)(orderId, id)
      if (phase === "charge" && !(yield* idempotency.isKnown(id))) {
        yield* Effect.orDie(
          outcomes.manual(id, phase, "its recovery is lost, and no request is known that asked for it")
        )
        return
      }
      const idempotencyKey = recoveryKeyOf(id, phase)
      const { isNew } = yield* tasks.enqueue(paymentRecover, { paymentId: id }, { idempotencyKey })
      if (!isNew) yield* Effect.orDie(outcomes.manual(id, phase, "its recovery has ended without an outcome"))
    }),

    /** Appends the event of the order's last version again: nobody has heard of it. */
    appendLast: Effect.fnUntraced(function* (orderId: string, version: number) {
      const locked = yield* wholeOf(orderId)
      const { id, status, version: last } = locked.order
      if (version !== last) {
        return yield* cantMend(
          `version ${version} is missing before version ${last}: its event can't be told any more. Once the version after it is sent, each consumer ` +
            `holds that event as a gap: paid-once inbox list names it, and paid-once inbox skip CONSUMER EVENT goes on`
        )
      }
      if (status === "pending" && version > 1) {
        return yield* cantMend(
          `if no payment of the order was declined, its row's version is wrong: set it right with psql. Else that event can't be told any more: once ` +
            `the order is paid or cancelled, each consumer holds it as a gap; paid-once inbox list names it, and paid-once inbox skip CONSUMER EVENT goes on`
        )
      }
      const event = yield* announcement(locked)
      yield* mayTell(id, version - 1, event._tag)
      if (status === "cancelled") yield* mayCancel(id)
      yield* Effect.orDie(outbox.append(aggregateOf(id), version, [toNewEvent(event)]))
    }),

    /** Announces the order's status, with a new version. */
    announce: Effect.fnUntraced(function* (orderId: string) {
      const locked = yield* wholeOf(orderId)
      if (locked.order.status === "cancelled") return yield* cantMend(yield* uncancel(locked.order.id))
      const event = yield* announcement(locked)
      yield* mayTell(locked.order.id, locked.order.version, event._tag)
      yield* Effect.orDie(orders.save({ order: locked.order, events: [event] }, locked.at))
    }),

    /** A published event of the order, as its writer wrote it. Undefined once the archive has dropped it. */
    published: Effect.fnUntraced(function* (orderId: string, eventType: OrderEvent["_tag"]) {
      const { sql } = yield* Transaction
      const row = yield* firstEnvelope(sql`
        SELECT json_build_object(
          'eventId', event_id, 'eventType', event_type, 'schemaVersion', schema_version, 'occurredAt', ${sql.literal(isoTime("occurred_at"))},
          'traceId', trace_id, 'aggregateType', aggregate_type, 'aggregateId', aggregate_id, 'aggregateVersion', aggregate_version,
          'data', data) AS envelope
        FROM event_log WHERE aggregate_id = ${orderId} AND aggregate_type = 'Order' AND event_type = ${eventType}
        ORDER BY aggregate_version DESC LIMIT 1`)
      return row?.envelope
    })
  }
})

/** See {@link make}. */
export type Books = Effect.Success<typeof make>

/** An event of the order, for the handler of a consumer that has gone past its version. It is never published. */
export const envelopeOf = (
  orderId: OrderId,
  event: Pick<Envelope, "data" | "eventId" | "eventType" | "occurredAt" | "schemaVersion">
): Envelope => ({
  ...event,
  traceId: "0".repeat(32),
  aggregateType: orderAggregate,
  aggregateId: orderId,
  // No handler reads it.
  aggregateVersion: 1
})
