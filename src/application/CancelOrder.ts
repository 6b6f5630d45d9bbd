/** Cancelling an order that nobody has paid. A payment that is on its way meanwhile is given back when it arrives. */
import type { OrderId, PaymentId } from "../domain/Ids.ts"
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import { cancel, type OrderStateConflict } from "../domain/Order.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type OrderNotFound, Orders, type OrderView, viewAfter } from "./Orders.ts"
import { Payments } from "./Payments.ts"

/** The order is cancelled. `inFlight`: a payment of it whose money may still move, and will then be given back. */
export interface Cancelled {
  readonly view: OrderView
  readonly inFlight: PaymentId | undefined
}

export class CancelOrder extends Context.Service<
  CancelOrder,
  {
    /**
     * Cancels a pending order, now and with its event, whatever its payment does. An order that is cancelled already is answered the same
     * way again, for a client may have missed the answer; a paid one can only be refunded.
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
        // The lines were in OrderPlaced, with more beside them: what was not too large then is not so now.
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
