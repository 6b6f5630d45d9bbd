/**
 * Refunds a paid order, the whole amount. As for a charge, the intent is committed first. The recovery task then calls the gateway, at once
 * and until it has an answer, so the request does not wait for the gateway.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { OrderId, PaymentId } from "../domain/Ids.ts"
import { OrderStateConflict } from "../domain/Order.ts"
import { Faults } from "../platform/Faults.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { type OrderNotFound, Orders, type OrderView } from "./Orders.ts"
import { Payments } from "./Payments.ts"
import { paymentRecover, recoveryKeyOf } from "./tasks/PaymentRecover.ts"

/** The refund is under way: the order reads `refunding` until the gateway has confirmed it. */
export interface Refunding {
  readonly view: OrderView
  readonly paymentId: PaymentId
}

export class RefundOrder extends Context.Service<
  RefundOrder,
  {
    /** Begins the refund, or returns the one that is under way. */
    readonly refund: (id: OrderId) => Effect.Effect<Refunding, OrderNotFound | OrderStateConflict>
  }
>()("paid-once/application/RefundOrder") {
  static readonly layer: Layer.Layer<RefundOrder, never, Orders | Payments | Tasks | PgClient.PgClient> = Layer.effect(
    RefundOrder,
    Effect.gen(function* () {
      const orders = yield* Orders
      const payments = yield* Payments
      const tasks = yield* Tasks
      const faults = yield* Faults
      const database = yield* PgClient.PgClient

      const begin = Effect.fnUntraced(function* (
        id: OrderId
      ): Effect.fn.Return<Refunding, OrderNotFound | OrderStateConflict, Transaction> {
        const { status } = yield* orders.lock(id)
        if (status !== "paid") return yield* new OrderStateConflict({ orderId: id, status, wanted: "refunded" })
        const payment = yield* payments.lockOpenOf(id)
        if (payment === undefined) return yield* Effect.die(new Error(`order ${id} is paid, and by no payment`))
        if (payment.status === "captured") {
          yield* payments.move(payment, { to: "refunding" })
          yield* tasks.enqueue(
            paymentRecover,
            { paymentId: payment.id },
            { idempotencyKey: recoveryKeyOf(payment.id, "refund") }
          )
        }
        yield* faults.at("refund.after-intent")
        return { view: yield* orders.get(id), paymentId: payment.id }
      })

      return RefundOrder.of({
        refund: Effect.fn("RefundOrder.refund")((id) =>
          Effect.provideService(Transaction.run(begin(id)), PgClient.PgClient, database)
        )
      })
    })
  )
}
