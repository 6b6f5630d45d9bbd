import { Effect, Layer } from "effect"
import { GatewaySettings } from "../../../src/application/Gateway.ts"
import type { Mistake } from "./Mistake.ts"

export const chargeAfterRetention: Mistake = {
  name: "charge-after-retention",
  what: "A payment that the gateway knows nothing of is charged again with its key, however old the key is.",
  why: "The same key never charges twice, so asking again is safe at any time. But a gateway forgets its keys, mostly after a day: then the same key is a new one.",
  rule: "A key is used again in the first half of its retention only, by the database's clock and since the intent; after that it is a person's business.",
  read: "src/application/RecoverPayment.ts",
  plant: (real) => ({
    recoverPayment: Layer.provide(
      real.recoverPayment,
      Layer.effect(
        GatewaySettings,
        Effect.map(GatewaySettings, (settings) => ({ ...settings, keyRetentionMillis: Infinity }))
      )
    )
  })
}
