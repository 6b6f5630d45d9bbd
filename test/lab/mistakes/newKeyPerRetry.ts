import { PaymentId } from "../../../src/domain/Ids.ts"
import { Effect, Layer } from "effect"
import { Gateway } from "../../../src/application/Gateway.ts"
import { PayOrder } from "../../../src/application/PayOrder.ts"
import { RandomUuid } from "../../../src/platform/RandomUuid.ts"
import type { Mistake } from "./Mistake.ts"
import { version7 } from "./version7.ts"

export const newKeyPerRetry: Mistake = {
  name: "new-key-per-retry",
  what: "Each call to the gateway carries an idempotency key of its own.",
  why: "There is a key, and it is unique. But a key protects only whoever sends the same one again.",
  rule: "The gateway's key is the payment's id, however often it is asked.",
  read: "src/application/PayOrder.ts",
  plant: (real) => ({
    payOrder: Layer.provide(
      real.payOrder,
      Layer.effect(
        Gateway,
        Effect.gen(function* () {
          const gateway = yield* Gateway
          const drawUuid = yield* RandomUuid
          return Gateway.of({
            ...gateway,
            charge: (charge) =>
              Effect.suspend(() => gateway.charge({ ...charge, paymentId: PaymentId.make(version7(drawUuid())) }))
          })
        })
      )
    ) as Layer.Layer<PayOrder, never, Layer.Services<typeof real.payOrder>>
  })
}
