import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { CancelOrder } from "../../../src/application/CancelOrder.ts"
import type { Mistake } from "./Mistake.ts"

export const cancelWithoutRefund: Mistake = {
  name: "cancel-without-refund",
  what: "Cancelling an order closes its payment, too, as refunded, whatever that is doing at the moment.",
  why: "A closed payment can't pay the order any more, and a late outcome finds nothing to do. But the gateway has been asked already, and does not hear of it.",
  rule: "A payment that is under way stays open: what it captures for a cancelled order is given back.",
  read: "src/application/PaymentOutcomes.ts",
  plant: (real) => ({
    cancelOrder: Layer.effect(
      CancelOrder,
      Effect.gen(function* () {
        const { cancel, decide } = yield* CancelOrder
        const sql = yield* SqlClient.SqlClient
        return CancelOrder.of({
          decide,
          cancel: (id, request) =>
            Effect.tap(cancel(id, request), () =>
              Effect.orDie(sql`
                UPDATE payments SET status = 'refunded', captured_minor = amount_minor, refunded_minor = amount_minor,
                                    refund_begun_at = clock_now()
                WHERE order_id = ${id}::uuid AND status = 'charging'`)
            )
        })
      })
    ).pipe(Layer.provide(real.cancelOrder))
  })
}
