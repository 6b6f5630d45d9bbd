/** What an operator decides about an order. The entry in the audit commits with the change, or neither does. */
import { Effect, Schema } from "effect"
import type { OrderId, PaymentId } from "../domain/Ids.ts"
import * as OperatorAudit from "../platform/OperatorAudit.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type OrderNotFound, type Orders, OrderSummary } from "./Orders.ts"

/** The subject of an order's entries in the audit. */
export const auditSubject = "order"

/** An order after a decision. `changed` is false where it was so before. */
export const DecidedOrder = Schema.Struct({ order: OrderSummary, changed: Schema.Boolean }).annotate({
  identifier: "DecidedOrder"
})
export type DecidedOrder = typeof DecidedOrder.Type

/** What a decision has done, with the payment whose money it is about. */
export interface Done {
  readonly changed: boolean
  readonly paymentId: PaymentId | undefined
}

/**
 * Decides, and writes the entry where that changed something. The caller's transaction holds the order's lock, so that of equal decisions at
 * once one changes the order and the others find it changed.
 */
export const audited = Effect.fnUntraced(function* <E, R>(
  orders: Orders["Service"],
  id: OrderId,
  decision: OperatorAudit.Operator & { readonly action: "cancel" | "refund" },
  act: Effect.Effect<Done, E, R>
): Effect.fn.Return<DecidedOrder, E | OrderNotFound, R | Transaction> {
  const before = yield* orders.summary(id)
  const { changed, paymentId } = yield* act
  if (!changed) return { order: before, changed }
  const order = yield* orders.summary(id)
  yield* Effect.orDie(
    OperatorAudit.record({
      ...decision,
      subject: auditSubject,
      subjectId: id,
      before: { status: before.status },
      after: { status: order.status, paymentId: paymentId ?? null }
    })
  )
  const { afterCommit } = yield* Transaction
  yield* afterCommit(OperatorAudit.log(decision, `order ${id} is ${order.status}`))
  return { order, changed }
})
