/** The payments as they are stored: one row each, moved on only by guarded updates. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Order } from "../domain/Order.ts"
import { Payment, PaymentId, PaymentMethod } from "../domain/Payment.ts"
import { Transaction } from "../platform/database/Transaction.ts"
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

/** A payment with what it takes to settle it. `leased`: another attempt may still be at work on it. */
export const OpenPayment = Schema.Struct({ ...Payment.fields, paymentMethod: PaymentMethod, leased: Schema.Boolean })
export type OpenPayment = typeof OpenPayment.Type

/** See {@link Payments}. */
export interface PaymentsService {
  readonly get: (id: PaymentId) => Effect.Effect<Payment, PaymentNotFound>
  /** Records the intent to charge, leased to the caller for `leaseMillis`; at most one payment of an order is open. */
  readonly open: (
    id: PaymentId,
    order: Order,
    method: PaymentMethod,
    leaseMillis: number
  ) => Effect.Effect<void, PaymentOpen, Transaction>
  /** Reads the payment and locks its row to the end of the transaction. */
  readonly lock: (id: PaymentId) => Effect.Effect<OpenPayment, PaymentNotFound, Transaction>
  /** Leases the payment for `leaseMillis` from now, or gives the lease back with 0. */
  readonly lease: (id: PaymentId, leaseMillis: number) => Effect.Effect<void, never, Transaction>
  /** Moves a charging payment to the gateway's final word; the caller holds its lock and saw it charging. */
  readonly settle: (id: PaymentId, outcome: ChargeOutcome) => Effect.Effect<void, never, Transaction>
}

const decodePayment = Schema.decodeUnknownEffect(Payment)
const decodeOpen = Schema.decodeUnknownEffect(OpenPayment)

export class Payments extends Context.Service<Payments, PaymentsService>()("paid-once/application/Payments") {
  static readonly layer: Layer.Layer<Payments, never, SqlClient.SqlClient> = Layer.effect(
    Payments,
    Effect.gen(function* () {
      const client = yield* SqlClient.SqlClient
      const columns = client.literal(`
        id, order_id AS "orderId", status, amount_minor::float8 AS "amountMinor", currency,
        captured_minor::float8 AS "capturedMinor", refunded_minor::float8 AS "refundedMinor"`)

      return Payments.of({
        get: Effect.fn("Payments.get")(function* (id) {
          const [row] = yield* Effect.orDie(client`SELECT ${columns} FROM payments WHERE id = ${id}::uuid`)
          return row === undefined
            ? yield* new PaymentNotFound({ paymentId: id })
            : yield* Effect.orDie(decodePayment(row))
        }),
        open: Effect.fn("Payments.open")(function* (id, order, method, leaseMillis) {
          const { sql } = yield* Transaction
          const inserted = yield* Effect.orDie(sql`
            INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
            SELECT ${id}::uuid, ${order.id}::uuid, 'charging', ${method}, ${BigInt(order.totalAmountMinor)}, ${order.currency},
                   clock.now + ${leaseMillis}::float8 * interval '1 millisecond', clock.now, clock.now
            FROM (SELECT clock_now() AS now) AS clock
            ON CONFLICT DO NOTHING RETURNING 1 AS one`)
          if (inserted.length === 0) return yield* new PaymentOpen({ orderId: order.id })
        }),
        lock: Effect.fn("Payments.lock")(function* (id) {
          const { sql } = yield* Transaction
          const [row] = yield* Effect.orDie(sql`
            SELECT ${columns}, payment_method AS "paymentMethod", leased_until > clock_now() AS leased
            FROM payments WHERE id = ${id}::uuid FOR UPDATE`)
          return row === undefined
            ? yield* new PaymentNotFound({ paymentId: id })
            : yield* Effect.orDie(decodeOpen(row))
        }),
        lease: Effect.fn("Payments.lease")(function* (id, leaseMillis) {
          const { sql } = yield* Transaction
          yield* Effect.orDie(sql`
            UPDATE payments SET leased_until = clock_now() + ${leaseMillis}::float8 * interval '1 millisecond'
            WHERE id = ${id}::uuid AND status = 'charging'`)
        }),
        settle: Effect.fn("Payments.settle")(function* (id, outcome) {
          const { sql } = yield* Transaction
          const updated = yield* Effect.orDie(
            outcome._tag === "Captured"
              ? sql`UPDATE payments SET status = 'captured', captured_minor = amount_minor, updated_at = clock_now()
                    WHERE id = ${id}::uuid AND status = 'charging' RETURNING 1 AS one`
              : sql`UPDATE payments SET status = 'declined', decline_reason = ${outcome.reason}, updated_at = clock_now()
                    WHERE id = ${id}::uuid AND status = 'charging' RETURNING 1 AS one`
          )
          if (updated.length === 0)
            return yield* Effect.die(new Error(`payment ${id} was not charging when it was settled`))
        })
      })
    })
  )
}
