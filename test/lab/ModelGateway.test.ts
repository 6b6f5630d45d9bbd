import { Effect, Layer } from "effect"
import { gatewayContract } from "../contracts/Gateway.ts"
import * as ModelGateway from "./ModelGateway.ts"

const state = new ModelGateway.ModelGatewayState(() => 0)
const layer = Layer.suspend(() => ModelGateway.layer(state, () => Effect.void))

gatewayContract("the lab's model gateway", layer, {
  totals: Effect.sync(() => ({ captured: state.captures.length, refunded: state.refunds.length })),
  refundThere: (paymentId) => Effect.sync(() => state.refundThere(paymentId))
})
