/** The payments as they are stored: one row each, moved on only by guarded updates. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type OrderId, PaymentId } from "../domain/Ids.ts"
import type { Order } from "../domain/Order.ts"
import { Payment, PaymentMethod, type PaymentStatus, sourcesOf } from "../domain/Payment.ts"
import * as Rows from "../platform/Rows.ts"
import * as Traced from "../platform/Traced.ts"
import { Transaction } from "../platform/Transaction.ts"
import type { ChargeOutcome } from "./Gateway.ts"

/** There is no payment with this id. */
export class PaymentNotFound extends Schema.TaggedError<PaymentNotFound>()("PaymentNotFound", {
  paymentId: PaymentId
}) {
  override get message() {
    return `there is no payment ${this.paymentId}`
  }
}

/** Another payment of the order is open, or has captured the money. */
export class PaymentOpen extends Schema.TaggedError<PaymentOpen>()("PaymentOpen", { orderId: Schema.String }) {
  override get message() {
    return `another payment of order ${this.orderId} is under way`
  }
}

/** A payment, with what its settlement needs. Ages in milliseconds by the database's clock. */
export const OpenPayment = Schema.Struct({
  ...Payment.fields,
  paymentMethod: PaymentMethod,
  /** Another attempt may be charging it. */
  leased: Schema.Boolean,
  /** The gateway has declined it, whatever it said later. Such a payment never pays its order. */
  wasDeclined: Schema.Boolean,
  /** An attempt got no answer from the gateway. */
  isUnknown: Schema.Boolean,
  /** Since the intent to charge. */
  ageMillis: Schema.Number,
  /** Since the intent to refund; null without one, also where the gateway has reported a refund that nobody here asked for. */
  refundAgeMillis: Schema.NullOr(Schema.Number)
})
export type OpenPayment = typeof OpenPayment.Type

/** The next status of a payment. */
export type Move =
  | { readonly to: "captured" | "refunding" | "refunded" | "manual" }
  | { readonly to: "declined"; readonly reason: string }

/** How the outcome of the charge moves the payment. A capture for a cancelled order is not wanted, and is refunded. */
export const moveOf = (outcome: ChargeOutcome, isWanted: boolean): Move =>
  outcome._tag === "Declined" ? { to: "declined", reason: outcome.reason } : { to: isWanted ? "captured" : "refunding" }

/** See {@link Payments}. */
export interface PaymentsService {
  readonly get: (id: PaymentId) => Effect.Effect<Payment, PaymentNotFound>
  /**
   * Records the intent to pay the order, for as much as it costs: the payment `charging`, leased to the caller for `leaseMillis`. The
   * caller holds the order's lock. The unique index allows one open payment per order. Money of a declined payment has to be back first.
   */
  readonly open: (
    order: Order,
    id: PaymentId,
    method: PaymentMethod,
    leaseMillis: number
  ) => Effect.Effect<OpenPayment, PaymentOpen, Transaction>
  /** Reads the payment and locks its row to the end of the transaction. A caller that locks its order, too, does so before. */
  readonly lock: (id: PaymentId) => Effect.Effect<OpenPayment, PaymentNotFound, Transaction>
  /** The order's payment that was neither declined nor refunded, locked. The caller holds the order's lock. */
  readonly lockOpenOf: (orderId: OrderId) => Effect.Effect<OpenPayment | undefined, never, Transaction>
  /** Leases a charging payment for `leaseMillis` from now. */
  readonly lease: (id: PaymentId, leaseMillis: number) => Effect.Effect<void, never, Transaction>
  /** Gives the lease back, and stores that the gateway gave no outcome. */
  readonly noteUnknown: (id: PaymentId) => Effect.Effect<void, never, Transaction>
  /** Moves the payment on. The caller holds its lock and saw a state that allows it: anything else is a defect. */
  readonly move: (payment: OpenPayment, move: Move) => Effect.Effect<void, never, Transaction>
}

const first = Rows.first(Payment)
const firstOpen = Rows.first(OpenPayment)
const moved = Rows.first(Schema.Struct({ id: PaymentId }))

/** Amounts are int8, which arrives as bigint; as float8 they are exact up to 2⁵³, and a total is never above that. */
const columns = `
  p.id, p.order_id AS "orderId", p.status, p.amount_minor::float8 AS "amountMinor", p.currency,
  p.captured_minor::float8 AS "capturedMinor", p.refunded_minor::float8 AS "refundedMinor"`
const openColumns = `${columns},
  p.payment_method AS "paymentMethod", p.leased_until > clock_now() AS leased, p.unknown_since IS NOT NULL AS "isUnknown",
  p.decline_reason IS NOT NULL AS "wasDeclined",
  (extract(epoch FROM clock_now() - p.created_at) * 1000)::float8 AS "ageMillis",
  (extract(epoch FROM clock_now() - p.refund_begun_at) * 1000)::float8 AS "refundAgeMillis"`

export class Payments extends Context.Service<Payments, PaymentsService>()("paid-once/application/Payments") {
  static readonly layer: Layer.Layer<Payments, never, SqlClient.SqlClient> = Layer.effect(
    Payments,
    Effect.gen(function* () {
      const client = yield* SqlClient.SqlClient
      const open_ = client.literal(openColumns)

      return Payments.of({
        get: Traced.fn("Payments.get")(function* (id) {
          const payment = yield* Effect.orDie(
            first(client`SELECT ${client.literal(columns)} FROM payments AS p WHERE p.id = ${id}::uuid`)
          )
          return payment ?? (yield* new PaymentNotFound({ paymentId: id }))
        }),
        open: Traced.fn("Payments.open")(function* (order, id, method, leaseMillis) {
          const { sql } = yield* Transaction
          const payment = yield* Effect.orDie(
            firstOpen(sql`
              INSERT INTO payments AS p
                (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
              SELECT ${id}::uuid, ${order.id}::uuid, 'charging', ${method}, ${BigInt(order.totalAmountMinor)}, ${order.currency},
                     clock.now + ${leaseMillis}::float8 * interval '1 millisecond', clock.now, clock.now
              FROM (SELECT clock_now() AS now) AS clock
              WHERE NOT EXISTS (SELECT FROM payments AS other
                                WHERE other.order_id = ${order.id}::uuid AND other.status IN ('manual', 'refunding'))
              ON CONFLICT DO NOTHING
              RETURNING ${open_}`)
          )
          return payment ?? (yield* new PaymentOpen({ orderId: order.id }))
        }),
        lock: Traced.fn("Payments.lock")(function* (id) {
          const { sql } = yield* Transaction
          const payment = yield* Effect.orDie(
            firstOpen(sql`SELECT ${open_} FROM payments AS p WHERE p.id = ${id}::uuid FOR UPDATE`)
          )
          return payment ?? (yield* new PaymentNotFound({ paymentId: id }))
        }),
        lockOpenOf: Traced.fn("Payments.lockOpenOf")(function* (orderId) {
          const { sql } = yield* Transaction
          return yield* Effect.orDie(
            firstOpen(sql`
              SELECT ${open_} FROM payments AS p
              WHERE p.order_id = ${orderId}::uuid AND p.status IN ('charging', 'captured', 'manual', 'refunding')
                AND p.decline_reason IS NULL FOR UPDATE`)
          )
        }),
        lease: Traced.fn("Payments.lease")(function* (id, leaseMillis) {
          const { sql } = yield* Transaction
          yield* Effect.orDie(sql`
            UPDATE payments SET leased_until = clock_now() + ${leaseMillis}::float8 * interval '1 millisecond'
            WHERE id = ${id}::uuid AND status = 'charging'`)
        }),
        noteUnknown: Traced.fn("Payments.noteUnknown")(function* (id) {
          const { sql } = yield* Transaction
          yield* Effect.orDie(sql`
            UPDATE payments SET leased_until = clock_now(), unknown_since = coalesce(unknown_since, clock_now())
            WHERE id = ${id}::uuid AND status = 'charging'`)
        }),
        move: Traced.fn("Payments.move")(function* ({ id, status }, move) {
          const { sql } = yield* Transaction
          const row = yield* Effect.orDie(
            moved(sql`
              UPDATE payments SET status = ${move.to}, updated_at = clock_now(),
                captured_minor = CASE WHEN ${move.to} IN ('captured', 'refunding', 'refunded') THEN amount_minor ELSE captured_minor END,
                refunded_minor = CASE WHEN ${move.to} = 'refunded' THEN amount_minor ELSE 0 END,
                refund_begun_at = CASE WHEN ${move.to} IN ('refunding', 'refunded') THEN coalesce(refund_begun_at, clock_now())
                                       ELSE refund_begun_at END,
                decline_reason = coalesce(decline_reason, ${move.to === "declined" ? move.reason : null}::text)
              WHERE id = ${id}::uuid AND status = ANY (${[...sourcesOf(move.to)]}::text[])
                -- A manual payment waits for its charge or for its refund, and is settled by the outcome of that one alone.
                -- An operator says so where a captured one stays captured; nothing asks for a refund of it then.
                AND (status <> 'manual' OR (captured_minor > 0) = (${move.to} = 'refunded')
                     OR (${move.to} = 'captured' AND refund_begun_at IS NULL))
              RETURNING id`)
          )
          if (row === undefined) {
            return yield* Effect.die(
              new Error(`payment ${id} was ${status}: it can't become ${move.to satisfies PaymentStatus}`)
            )
          }
        })
      })
    })
  )
}
