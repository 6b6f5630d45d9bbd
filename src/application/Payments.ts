/** The payments as they are stored: one row each, moved on only by guarded updates. */
import { type OrderId, PaymentId } from "../domain/Ids.ts"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { OrderStateConflict, StoredStatus } from "../domain/Order.ts"
import { Payment, PaymentMethod, type PaymentStatus, sourcesOf } from "../domain/Payment.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Ids } from "../platform/Ids.ts"
import type { ChargeOutcome } from "./Gateway.ts"
import { claiming, type KeyedRequest } from "./Idempotency.ts"
import { type LockedOrder, lockedOrderColumns, lockedOrderOf, LockedOrderRow, OrderNotFound } from "./Orders.ts"

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

/** A payment with what it takes to settle it. Ages in milliseconds of the database's clock. */
export const OpenPayment = Schema.Struct({
  ...Payment.fields,
  paymentMethod: PaymentMethod,
  /** Another attempt may still be at work on it. */
  leased: Schema.Boolean,
  /** The gateway has left somebody without an answer. */
  isUnknown: Schema.Boolean,
  /** Since the intent to charge. */
  ageMillis: Schema.Number,
  /** Since the intent to refund; null without one. */
  refundAgeMillis: Schema.NullOr(Schema.Number)
})
export type OpenPayment = typeof OpenPayment.Type

/** What a payment becomes. */
export type Move =
  | { readonly to: "captured" | "refunding" | "refunded" | "manual" }
  | { readonly to: "declined"; readonly reason: string }

/** How the gateway's word on the charge moves the payment: a capture that nobody wants any more is given back. */
export const moveOf = (outcome: ChargeOutcome, isWanted: boolean): Move =>
  outcome._tag === "Declined" ? { to: "declined", reason: outcome.reason } : { to: isWanted ? "captured" : "refunding" }

/** See {@link Payments}. */
export interface PaymentsService {
  readonly get: (id: PaymentId) => Effect.Effect<Payment, PaymentNotFound>
  /**
   * Records the intent to pay the order, in one statement: the order locked, the key claimed, the payment `charging` and leased to the
   * caller for `leaseMillis`. Undefined where the key is taken: then nothing was written. On a failure the transaction has to be rolled back.
   */
  readonly open: (
    request: KeyedRequest,
    orderId: OrderId,
    method: PaymentMethod,
    leaseMillis: number
  ) => Effect.Effect<OpenPayment | undefined, OrderNotFound | OrderStateConflict | PaymentOpen, Transaction>
  /** Reads the payment and locks its row to the end of the transaction. */
  readonly lock: (id: PaymentId) => Effect.Effect<OpenPayment, PaymentNotFound, Transaction>
  /** {@link lock}, behind the lock of its order: what changes both goes in this order. */
  readonly lockWithOrder: (
    id: PaymentId
  ) => Effect.Effect<{ readonly payment: OpenPayment; readonly locked: LockedOrder }, PaymentNotFound, Transaction>
  /** The order's payment that is neither declined nor refunded, locked. The caller holds the order's lock. */
  readonly lockOpenOf: (orderId: OrderId) => Effect.Effect<OpenPayment | undefined, never, Transaction>
  /** Leases a charging payment for `leaseMillis` from now. */
  readonly lease: (id: PaymentId, leaseMillis: number) => Effect.Effect<void, never, Transaction>
  /** Gives the lease back, and notes that the gateway has not told the outcome. */
  readonly noteUnknown: (id: PaymentId) => Effect.Effect<void, never, Transaction>
  /** Moves the payment on. The caller holds its lock and saw a state that allows it: anything else is a defect. */
  readonly move: (payment: OpenPayment, move: Move) => Effect.Effect<void, never, Transaction>
}

/**
 * The statement that moves a payment on, guarded by `paymentTransitions`; `written` is a relation that must have a row.
 * It returns a row where it did.
 */
export const moving = (sql: Statement.Constructor, id: PaymentId, move: Move, written?: Statement.Fragment) => sql`
  UPDATE payments SET status = ${move.to}, updated_at = clock_now(),
    captured_minor = CASE WHEN ${move.to} IN ('captured', 'refunding', 'refunded') THEN amount_minor ELSE captured_minor END,
    refunded_minor = CASE WHEN ${move.to} = 'refunded' THEN amount_minor ELSE 0 END,
    refund_begun_at = CASE WHEN ${move.to} = 'refunding' THEN clock_now() ELSE refund_begun_at END,
    decline_reason = ${move.to === "declined" ? move.reason : null}::text
  ${written === undefined ? sql`` : sql`FROM ${written}`}
  WHERE id = ${id}::uuid AND status = ANY (${[...sourcesOf(move.to)]}::text[])
    -- What is manual is so in one of two phases, and only goes on from there.
    AND (status <> 'manual' OR (captured_minor > 0) = (${move.to} = 'refunded'))
  RETURNING 1 AS one`

const decodePayment = Schema.decodeUnknownEffect(Payment)
const decodeOpen = Schema.decodeUnknownEffect(OpenPayment)
const Intent = Schema.Struct({
  orderStatus: StoredStatus,
  isClaimed: Schema.Boolean,
  payment: Schema.NullOr(OpenPayment)
})
const decodeIntent = Schema.decodeUnknownEffect(Intent)
const Both = Schema.Struct({ order: LockedOrderRow, payment: OpenPayment })
const decodeBoth = Schema.decodeUnknownEffect(Both)

const columns = (alias: string) => `
  ${alias}.id, ${alias}.order_id AS "orderId", ${alias}.status, ${alias}.amount_minor::float8 AS "amountMinor", ${alias}.currency,
  ${alias}.captured_minor::float8 AS "capturedMinor", ${alias}.refunded_minor::float8 AS "refundedMinor"`
const openColumns = (alias: string) => `${columns(alias)},
  ${alias}.payment_method AS "paymentMethod", ${alias}.leased_until > clock_now() AS leased, ${alias}.unknown_since IS NOT NULL AS "isUnknown",
  (extract(epoch FROM clock_now() - ${alias}.created_at) * 1000)::float8 AS "ageMillis",
  (extract(epoch FROM clock_now() - ${alias}.refund_begun_at) * 1000)::float8 AS "refundAgeMillis"`

export class Payments extends Context.Service<Payments, PaymentsService>()("paid-once/application/Payments") {
  static readonly layer: Layer.Layer<Payments, never, Ids | SqlClient.SqlClient> = Layer.effect(
    Payments,
    Effect.gen(function* () {
      const client = yield* SqlClient.SqlClient
      const ids = yield* Ids
      const open_ = client.literal(openColumns("p"))

      return Payments.of({
        get: Effect.fn("Payments.get")(function* (id) {
          const [row] = yield* Effect.orDie(
            client`SELECT ${client.literal(columns("p"))} FROM payments AS p WHERE p.id = ${id}::uuid`
          )
          return row === undefined
            ? yield* new PaymentNotFound({ paymentId: id })
            : yield* Effect.orDie(decodePayment(row))
        }),
        open: Effect.fn("Payments.open")(function* (request, orderId, method, leaseMillis) {
          const { sql } = yield* Transaction
          // The order's lock comes first, for everybody. Whoever waited for it sees the order as it is then, and of the key and of other
          // payments the unique indexes know, whatever this statement's snapshot says.
          const [row] = yield* Effect.orDie(sql`
            WITH locked AS (SELECT * FROM orders WHERE id = ${orderId}::uuid FOR UPDATE),
            fresh AS MATERIALIZED (
              SELECT clock.now, ${ids.next()}::uuid AS id
              FROM locked, LATERAL (SELECT clock_now() AS now) AS clock),
            claimed AS (${claiming(sql, request, sql`fresh`)}),
            opened AS (
              INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
              SELECT claimed.subject_id, locked.id, 'charging', ${method}, locked.total_amount_minor, locked.currency,
                     fresh.now + ${leaseMillis}::float8 * interval '1 millisecond', fresh.now, fresh.now
              FROM locked, fresh, claimed WHERE locked.status = 'pending'
              ON CONFLICT DO NOTHING RETURNING *)
            SELECT locked.status AS "orderStatus", EXISTS (SELECT FROM claimed) AS "isClaimed",
                   (SELECT row_to_json(payment) FROM (SELECT ${open_} FROM opened AS p) AS payment) AS payment
            FROM locked`)
          if (row === undefined) return yield* new OrderNotFound({ orderId })
          const { isClaimed, orderStatus, payment } = yield* Effect.orDie(decodeIntent(row))
          if (!isClaimed) return undefined
          if (orderStatus !== "pending")
            return yield* new OrderStateConflict({ orderId, status: orderStatus, wanted: "paid" })
          return payment ?? (yield* new PaymentOpen({ orderId }))
        }),
        lock: Effect.fn("Payments.lock")(function* (id) {
          const { sql } = yield* Transaction
          const [row] = yield* Effect.orDie(sql`SELECT ${open_} FROM payments AS p WHERE p.id = ${id}::uuid FOR UPDATE`)
          return row === undefined
            ? yield* new PaymentNotFound({ paymentId: id })
            : yield* Effect.orDie(decodeOpen(row))
        }),
        lockWithOrder: Effect.fn("Payments.lockWithOrder")(function* (id) {
          const { sql } = yield* Transaction
          const [row] = yield* Effect.orDie(sql`
            WITH o AS MATERIALIZED (
              SELECT ${sql.literal(lockedOrderColumns)} FROM orders AS o
              WHERE o.id = (SELECT order_id FROM payments WHERE id = ${id}::uuid) FOR UPDATE OF o),
            p AS MATERIALIZED (SELECT p.* FROM o JOIN payments AS p ON p.order_id = o.id WHERE p.id = ${id}::uuid FOR UPDATE OF p)
            SELECT row_to_json(o) AS "order", (SELECT row_to_json(payment) FROM (SELECT ${open_} FROM p) AS payment) AS payment FROM o`)
          if (row === undefined) return yield* new PaymentNotFound({ paymentId: id })
          const { order, payment } = yield* Effect.orDie(decodeBoth(row))
          return { payment, locked: lockedOrderOf(order) }
        }),
        lockOpenOf: Effect.fn("Payments.lockOpenOf")(function* (orderId) {
          const { sql } = yield* Transaction
          const [row] = yield* Effect.orDie(sql`
            SELECT ${open_} FROM payments AS p
            WHERE p.order_id = ${orderId}::uuid AND p.status IN ('charging', 'captured', 'manual', 'refunding') FOR UPDATE`)
          return row === undefined ? undefined : yield* Effect.orDie(decodeOpen(row))
        }),
        lease: Effect.fn("Payments.lease")(function* (id, leaseMillis) {
          const { sql } = yield* Transaction
          yield* Effect.orDie(sql`
            UPDATE payments SET leased_until = clock_now() + ${leaseMillis}::float8 * interval '1 millisecond'
            WHERE id = ${id}::uuid AND status = 'charging'`)
        }),
        noteUnknown: Effect.fn("Payments.noteUnknown")(function* (id) {
          const { sql } = yield* Transaction
          yield* Effect.orDie(sql`
            UPDATE payments SET leased_until = clock_now(), unknown_since = coalesce(unknown_since, clock_now())
            WHERE id = ${id}::uuid AND status = 'charging'`)
        }),
        move: Effect.fn("Payments.move")(function* (payment, move) {
          const { sql } = yield* Transaction
          const moved = yield* Effect.orDie(moving(sql, payment.id, move))
          if (moved.length === 0)
            return yield* Effect.die(
              new Error(
                `payment ${payment.id} was ${payment.status}: it can't become ${move.to satisfies PaymentStatus}`
              )
            )
        })
      })
    })
  )
}
