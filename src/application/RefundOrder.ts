/**
 * Refunds a paid order, the whole amount. As for a charge, the intent is committed first. The recovery task then calls the gateway, at once
 * and until it has an answer, so the request does not wait for the gateway.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { OrderId, PaymentId } from "../domain/Ids.ts"
import { type Order, OrderStateConflict } from "../domain/Order.ts"
import type { Operator } from "../platform/OperatorAudit.ts"
import { Faults } from "../platform/Faults.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { type FinalAnswer, Idempotency, type KeyedRequest, type KeyReused, once } from "./Idempotency.ts"
import * as OrderDecision from "./OrderDecision.ts"
import { encodeView, type OrderNotFound, Orders } from "./Orders.ts"
import { Payments } from "./Payments.ts"
import { paymentRecover, recoveryKeyOf } from "./tasks/PaymentRecover.ts"

export class RefundOrder extends Context.Service<
  RefundOrder,
  {
    /**
     * Begins the refund, or finds the one that is under way. A request with a key gets the key's first answer, also after the refund.
     *
     * The answer is 202: the order, which reads `refunding` until the gateway has confirmed it, and its payment.
     */
    readonly refund: (
      id: OrderId,
      request?: KeyedRequest
    ) => Effect.Effect<FinalAnswer, KeyReused | OrderNotFound | OrderStateConflict>
    /** The same by an operator's decision, audited in the same transaction. An order whose refund has begun or is made stays as it is. */
    readonly decide: (
      id: OrderId,
      operator: Operator
    ) => Effect.Effect<OrderDecision.DecidedOrder, OrderNotFound | OrderStateConflict>
  }
>()("paid-once/application/RefundOrder") {
  static readonly layer: Layer.Layer<RefundOrder, never, Orders | Payments | Idempotency | Tasks | PgClient.PgClient> =
    Layer.effect(
      RefundOrder,
      Effect.gen(function* () {
        const orders = yield* Orders
        const payments = yield* Payments
        const idempotency = yield* Idempotency
        const tasks = yield* Tasks
        const faults = yield* Faults
        const database = yield* PgClient.PgClient

        const begin = Effect.fnUntraced(function* (
          id: OrderId,
          status: Order["status"]
        ): Effect.fn.Return<
          { readonly changed: boolean; readonly paymentId: PaymentId },
          OrderStateConflict,
          Transaction
        > {
          if (status !== "paid") return yield* new OrderStateConflict({ orderId: id, status, wanted: "refunded" })
          const payment = yield* payments.lockOpenOf(id)
          if (payment === undefined) return yield* Effect.die(new Error(`order ${id} is paid, and by no payment`))
          if (payment.status === "manual" && payment.refundAgeMillis === null) {
            // A refund on top of a dispute could give the money back twice.
            const wanted = "refunded while its payment waits for a person"
            return yield* new OrderStateConflict({ orderId: id, status, wanted })
          }
          const changed = payment.status === "captured"
          if (changed) {
            yield* payments.move(payment, { to: "refunding" })
            yield* tasks.enqueue(
              paymentRecover,
              { paymentId: payment.id },
              { idempotencyKey: recoveryKeyOf(payment.id, "refund") }
            )
            yield* faults.at("refund.after-intent")
          }
          return { changed, paymentId: payment.id }
        })

        const beginAndAnswer = Effect.fnUntraced(function* (
          id: OrderId,
          status: Order["status"]
        ): Effect.fn.Return<FinalAnswer, OrderNotFound | OrderStateConflict, Transaction> {
          const { paymentId } = yield* begin(id, status)
          return { status: 202, body: encodeView(yield* orders.get(id)), paymentId }
        })

        const refundOnce = Effect.fnUntraced(function* (id: OrderId, request: KeyedRequest | undefined) {
          const { status } = yield* orders.lock(id)
          return yield* once(idempotency, request, id, beginAndAnswer(id, status))
        })

        const decideOnce = Effect.fnUntraced(function* (id: OrderId, operator: Operator) {
          const { status } = yield* orders.lock(id)
          // The gateway may have confirmed the refund between two clicks.
          if (status === "refunded") return { order: yield* orders.summary(id), changed: false }
          return yield* OrderDecision.audited(orders, id, { ...operator, action: "refund" }, begin(id, status))
        })

        return RefundOrder.of({
          refund: Effect.fn("RefundOrder.refund")((id, request) =>
            Effect.provideService(Transaction.run(refundOnce(id, request)), PgClient.PgClient, database)
          ),
          decide: Effect.fn("RefundOrder.decide")((id, operator) =>
            Effect.provideService(Transaction.run(decideOnce(id, operator)), PgClient.PgClient, database)
          )
        })
      })
    )
}
