/** Cancels an order that is not paid. A payment that is under way is refunded if it is captured. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { OrderId, PaymentId } from "../domain/Ids.ts"
import { cancel, type OrderStateConflict } from "../domain/Order.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type OrderNotFound, Orders, type OrderView, viewAfter } from "./Orders.ts"
import { Payments } from "./Payments.ts"

/** The order is cancelled. `inFlight` is a payment of it that may still be captured, and is refunded then. */
export interface Cancelled {
  readonly view: OrderView
  readonly inFlight: PaymentId | undefined
}

export class CancelOrder extends Context.Service<
  CancelOrder,
  {
    /**
     * Cancels a pending order, whatever the state of its payment. A repeated request for a cancelled order succeeds: the client may have
     * missed the answer. A paid order is a conflict: it can only be refunded.
     */
    readonly cancel: (id: OrderId) => Effect.Effect<Cancelled, OrderNotFound | OrderStateConflict>
  }
>()("paid-once/application/CancelOrder") {
  static readonly layer: Layer.Layer<CancelOrder, never, Orders | Payments | PgClient.PgClient> = Layer.effect(
    CancelOrder,
    Effect.gen(function* () {
      const orders = yield* Orders
      const payments = yield* Payments
      const database = yield* PgClient.PgClient

      const cancelLocked = Effect.fnUntraced(function* (
        id: OrderId
      ): Effect.fn.Return<Cancelled, OrderNotFound | OrderStateConflict, Transaction> {
        const locked = yield* orders.lockWhole(id)
        const payment = yield* payments.lockOpenOf(id)
        const inFlight = payment?.id
        if (locked.order.status === "cancelled") return { view: yield* orders.get(id), inFlight }
        const change = yield* Effect.fromResult(cancel(locked.order, locked.lines))
        // OrderPlaced had these lines and more, and was accepted: a refusal is a defect.
        yield* Effect.orDie(orders.save(change, { at: locked.at }))
        return { view: viewAfter(locked, change), inFlight }
      })

      return CancelOrder.of({
        cancel: Effect.fn("CancelOrder.cancel")((id) =>
          Effect.provideService(Transaction.run(cancelLocked(id)), PgClient.PgClient, database)
        )
      })
    })
  )
}
