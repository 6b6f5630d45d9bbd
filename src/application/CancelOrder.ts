/** Cancels an order that is not paid. A payment that is under way is refunded if it is captured. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { OrderId, PaymentId } from "../domain/Ids.ts"
import { cancel, type OrderStateConflict } from "../domain/Order.ts"
import type { Operator } from "../platform/OperatorAudit.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type FinalAnswer, Idempotency, type KeyedRequest, type KeyReused, once } from "./Idempotency.ts"
import * as OrderDecision from "./OrderDecision.ts"
import { encodeView, type LockedOrder, type OrderNotFound, Orders, type OrderView, viewAfter } from "./Orders.ts"
import { Payments } from "./Payments.ts"

export class CancelOrder extends Context.Service<
  CancelOrder,
  {
    /**
     * Cancels a pending order, whatever the state of its payment. A repeated request for a cancelled order succeeds: the client may have
     * missed the answer. A paid order is a conflict: it can only be refunded. A request with a key gets the key's first answer.
     *
     * The answer is the order: 200, or 202 with a payment of it that may still be captured, and is refunded then.
     */
    readonly cancel: (
      id: OrderId,
      request?: KeyedRequest
    ) => Effect.Effect<FinalAnswer, KeyReused | OrderNotFound | OrderStateConflict>
    /** The same by an operator's decision, audited in the same transaction. A cancelled order stays as it is. */
    readonly decide: (
      id: OrderId,
      operator: Operator
    ) => Effect.Effect<OrderDecision.DecidedOrder, OrderNotFound | OrderStateConflict>
  }
>()("paid-once/application/CancelOrder") {
  static readonly layer: Layer.Layer<CancelOrder, never, Orders | Payments | Idempotency | PgClient.PgClient> =
    Layer.effect(
      CancelOrder,
      Effect.gen(function* () {
        const orders = yield* Orders
        const idempotency = yield* Idempotency
        const payments = yield* Payments
        const database = yield* PgClient.PgClient

        /** Cancels, and tells the order's view; undefined where it was cancelled before. */
        const cancelLocked = Effect.fnUntraced(function* (
          id: OrderId,
          locked: LockedOrder
        ): Effect.fn.Return<
          { readonly view: OrderView | undefined; readonly paymentId: PaymentId | undefined },
          OrderStateConflict,
          Transaction
        > {
          const paymentId = (yield* payments.lockOpenOf(id))?.id
          if (locked.order.status === "cancelled") return { view: undefined, paymentId }
          const change = yield* Effect.fromResult(cancel(locked.order, locked.lines))
          // OrderPlaced had these lines and more, and was accepted: a refusal is a defect.
          yield* Effect.orDie(orders.save(change, locked.at))
          return { view: viewAfter(locked, change), paymentId }
        })

        const cancelAndAnswer = Effect.fnUntraced(function* (
          id: OrderId,
          locked: LockedOrder
        ): Effect.fn.Return<FinalAnswer, OrderNotFound | OrderStateConflict, Transaction> {
          const { paymentId, view } = yield* cancelLocked(id, locked)
          const body = encodeView(view ?? (yield* orders.get(id)))
          return { status: paymentId === undefined ? 200 : 202, body, paymentId }
        })

        const cancelOnce = Effect.fnUntraced(function* (id: OrderId, request: KeyedRequest | undefined) {
          const locked = yield* orders.lockWhole(id)
          return yield* once(idempotency, request, id, cancelAndAnswer(id, locked))
        })

        const decideOnce = Effect.fnUntraced(function* (id: OrderId, operator: Operator) {
          const locked = yield* orders.lockWhole(id)
          const act = Effect.map(cancelLocked(id, locked), ({ paymentId, view }) => ({
            changed: view !== undefined,
            paymentId
          }))
          return yield* OrderDecision.audited(orders, id, { ...operator, action: "cancel" }, act)
        })

        return CancelOrder.of({
          cancel: Effect.fn("CancelOrder.cancel")((id, request) =>
            Effect.provideService(Transaction.run(cancelOnce(id, request)), PgClient.PgClient, database)
          ),
          decide: Effect.fn("CancelOrder.decide")((id, operator) =>
            Effect.provideService(Transaction.run(decideOnce(id, operator)), PgClient.PgClient, database)
          )
        })
      })
    )
}
