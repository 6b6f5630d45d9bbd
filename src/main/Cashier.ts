/** The services of the operator's commands that ask the payment gateway. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer } from "effect"
import { Gateway } from "../application/Gateway.ts"
import { GatewayLedger } from "../application/GatewayLedger.ts"
import { Reconciliation } from "../application/reconciliation/Reconciliation.ts"
import { ReconciliationRuns } from "../application/reconciliation/ReconciliationRuns.ts"
import { SettlePayment } from "../application/SettlePayment.ts"
import { Subscribers } from "../application/Timeline.ts"
import { logging } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import { Fibers } from "../platform/Supervised.ts"
import * as SandboxSchema from "../sandbox/SandboxSchema.ts"
import { settings } from "../Settings.ts"
import { useCases } from "./Commands.ts"
import { consumerNames } from "./Names.ts"
import { foundDatabase } from "./Storage.ts"
import * as TopicHistory from "./TopicHistory.ts"
import { gatewaySettings } from "./UseCases.ts"

export { nameOf } from "./Storage.ts"

/** Without GATEWAY_URL in the operator's shell, an empty sandbox would answer in the place of the service's gateway. */
const sandboxIsThere = (config: AppConfig) =>
  Layer.effectDiscard(config.gatewayUrl === undefined ? SandboxSchema.check : Effect.void)

/** Settles payments, reconciles the books, and asks the gateway: that of GATEWAY_URL, or the books of the sandbox, which are in the database. */
export const cashier = (config: AppConfig) =>
  Layer.merge(
    SettlePayment.layer,
    Layer.provide(Reconciliation.layer, Layer.merge(ReconciliationRuns.layer, TopicHistory.layer(config)))
  ).pipe(
    Layer.provide(Layer.merge(useCases, Layer.succeed(Subscribers, { names: consumerNames }))),
    Layer.provide(Layer.merge(Gateway.layerHttp, GatewayLedger.layerHttp)),
    Layer.provide(Layer.merge(gatewaySettings(config), NodeHttpClient.layerUndici)),
    Layer.provide(sandboxIsThere(config)),
    Layer.provide(Fibers.layer),
    Layer.provide(foundDatabase(config)),
    Layer.provide(settings(config)),
    // As in Commands.ts.
    Layer.merge(logging(config))
  )

/** See {@link cashier}. */
export type CashierServices = Layer.Success<ReturnType<typeof cashier>>
