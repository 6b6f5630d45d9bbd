import { PaymentId } from "../../../src/domain/Ids.ts"
import { Effect, Layer } from "effect"
import { type ChargeOutcome, Gateway } from "../../../src/application/Gateway.ts"
import { Orders } from "../../../src/application/Orders.ts"
import { PayOrder } from "../../../src/application/PayOrder.ts"
import { RandomUuid } from "../../../src/platform/RandomUuid.ts"
import type { Mistake } from "./Mistake.ts"
import { version7 } from "./version7.ts"

export const chargeBeforeIntent: Mistake = {
  name: "charge-before-intent",
  what: "A pending order is charged first, with a key drawn for the attempt; what came of it is then recorded in one transaction.",
  why: "One transaction instead of two, and nothing is stored that might not happen. But the money moves before anything tells of it.",
  rule: "The intent is durable before money moves, and its payment's id is the gateway's key.",
  read: "src/application/PayOrder.ts",
  plant: (real) => {
    const charged = new Map<number, ChargeOutcome>()
    return {
      payOrder: Layer.effect(
        PayOrder,
        Effect.gen(function* () {
          const payOrder = yield* PayOrder
          const gateway = yield* Gateway
          const orders = yield* Orders
          const drawUuid = yield* RandomUuid
          return PayOrder.of({
            pay: Effect.fnUntraced(function* (orderId, paymentMethod, request) {
              const order = yield* orders.get(orderId)
              if (order.status === "pending") {
                const paymentId = PaymentId.make(version7(drawUuid()))
                const amount = { amountMinor: order.totalAmountMinor, currency: order.currency }
                const outcome = yield* Effect.option(gateway.charge({ paymentId, amount, paymentMethod }))
                if (outcome._tag === "Some") charged.set(order.totalAmountMinor, outcome.value)
              }
              return yield* payOrder.pay(orderId, paymentMethod, request)
            })
          })
        })
      ).pipe(
        Layer.provide(
          real.payOrder.pipe(
            // The payment is recorded after the charge, and gets the outcome that is already known.
            Layer.provide(
              Layer.effect(
                Gateway,
                Effect.map(Gateway, (gateway) =>
                  Gateway.of({
                    ...gateway,
                    charge: (charge) => {
                      const outcome = charged.get(charge.amount.amountMinor)
                      return outcome === undefined ? gateway.charge(charge) : Effect.succeed(outcome)
                    }
                  })
                )
              )
            )
          )
        )
      )
    }
  }
}
