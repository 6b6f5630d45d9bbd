import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { CancelOrder } from "../../../src/application/CancelOrder.ts"
import type { Mistake } from "./Mistake.ts"

export const cancelWithoutRefund: Mistake = {
  name: "cancel-without-refund",
  what: "Cancelling an order closes its payment, too, whatever that is doing at the moment.",
  why: "A closed payment can't pay the order any more, and a late outcome finds nothing to do. But the gateway has been asked already, and does not hear of it.",
  rule: "A payment that is under way stays open: what it captures for a cancelled order is given back.",
  read: "src/application/PaymentOutcomes.ts",
  plant: (real) => ({
    cancelOrder: Layer.effect(
      CancelOrder,
      Effect.gen(function* () {
        const { cancel } = yield* CancelOrder
        const sql = yield* SqlClient.SqlClient
        return CancelOrder.of({
          cancel: (id) =>
            Effect.tap(cancel(id), () =>
              Effect.orDie(sql`
                UPDATE payments SET status = 'declined', decline_reason = 'the order was cancelled'
                WHERE order_id = ${id}::uuid AND status = 'charging'`)
            )
        })
      })
    ).pipe(Layer.provide(real.cancelOrder))
  })
}
