/** The use cases, and the payment gateway that they charge at. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Layer } from "effect"
import { CancelOrder } from "../application/CancelOrder.ts"
import { Gateway, GatewaySettings } from "../application/Gateway.ts"
import { GatewayLedger } from "../application/GatewayLedger.ts"
import { GatewayWebhook } from "../application/GatewayWebhook.ts"
import { Idempotency } from "../application/Idempotency.ts"
import { Orders } from "../application/Orders.ts"
import * as PaymentMetrics from "../application/PaymentMetrics.ts"
import { PaymentOutcomes } from "../application/PaymentOutcomes.ts"
import { Payments } from "../application/Payments.ts"
import { PayOrder } from "../application/PayOrder.ts"
import { PlaceOrder } from "../application/PlaceOrder.ts"
import * as Nightly from "../application/reconciliation/Nightly.ts"
import { Reconciliation } from "../application/reconciliation/Reconciliation.ts"
import { ReconciliationRuns } from "../application/reconciliation/ReconciliationRuns.ts"
import { RecoverPayment } from "../application/RecoverPayment.ts"
import { RefundOrder } from "../application/RefundOrder.ts"
import { Reports } from "../application/Reports.ts"
import { Subscribers, Timeline } from "../application/Timeline.ts"
import type { AppConfig } from "../Config.ts"
import { GatewayServer } from "../sandbox/GatewayServer.ts"
import { consumerNames } from "./Names.ts"
import { sandbox } from "./Sandbox.ts"
import * as TopicHistory from "./TopicHistory.ts"

/** The payment gateway of GATEWAY_URL, or a sandbox beside the service that speaks the same HTTP. */
export const gatewaySettings = (config: AppConfig) => {
  const known = { timeoutMillis: config.gatewayTimeoutMillis, keyRetentionMillis: config.gatewayKeyRetentionMillis }
  return config.gatewayUrl !== undefined
    ? Layer.succeed(GatewaySettings, { ...config.gatewayUrl, ...known })
    : Layer.effect(
        GatewaySettings,
        GatewayServer.useSync(({ url }) => ({ url, ...known }))
      ).pipe(Layer.provideMerge(sandbox(config, 0)))
}

/** Each call makes layers of its own: a process calls it once, and hands the value to all parts that need it. */
export const useCases = (config: AppConfig) =>
  Layer.mergeAll(
    PlaceOrder.layer,
    PayOrder.layer,
    RecoverPayment.layer,
    CancelOrder.layer,
    RefundOrder.layer,
    GatewayWebhook.layer,
    PaymentMetrics.layer,
    Reconciliation.layer,
    // Without this line the alert on differences never fires.
    Nightly.layerMetric,
    Reports.layer,
    Timeline.layer
  ).pipe(
    Layer.provideMerge(Layer.merge(PaymentOutcomes.layer, ReconciliationRuns.layer)),
    Layer.provide(TopicHistory.layer(config)),
    Layer.provideMerge(
      Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer, Gateway.layerHttp, GatewayLedger.layerHttp)
    ),
    Layer.provideMerge(Layer.merge(gatewaySettings(config), NodeHttpClient.layerUndici)),
    Layer.provideMerge(Layer.succeed(Subscribers, { names: consumerNames }))
  )
