/** The services of the operator's commands, which run beside the service's processes. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer } from "effect"
import { CustomerEvents } from "../application/views/CustomerEvents.ts"
import { Gateway } from "../application/Gateway.ts"
import { Idempotency } from "../application/Idempotency.ts"
import { UnsettledMail } from "../application/mail/UnsettledMail.ts"
import { Journey } from "../application/views/Journey.ts"
import { Orders } from "../application/Orders.ts"
import { PaymentOutcomes } from "../application/PaymentOutcomes.ts"
import { PaceReport } from "../application/views/PaceReport.ts"
import { PaymentReport } from "../application/views/PaymentReport.ts"
import { Payments } from "../application/Payments.ts"
import { SettlePayment } from "../application/SettlePayment.ts"
import { StatusReport } from "../application/views/StatusReport.ts"
import { Sums } from "../application/views/Sums.ts"
import { Subscribers } from "../application/Timeline.ts"
import * as Config from "../Config.ts"
import type { AppConfig } from "../Config.ts"
import { faultPoints } from "../FaultPoints.ts"
import { KnownNames } from "../http/admin/KnownNames.ts"
import { ConsumerLag } from "../operations/reports/ConsumerLag.ts"
import { EventSearch } from "../operations/reports/EventSearch.ts"
import { ArmedFaults } from "../operations/faults/ArmedFaults.ts"
import { SettingsInForce } from "../http/admin/SettingsInForce.ts"
import { AuditReport } from "../operations/reports/AuditReport.ts"
import { ConsumerReport } from "../operations/reports/ConsumerReport.ts"
import { OutboxDeadLetters } from "../operations/OutboxDeadLetters.ts"
import { InboxDeadLetters } from "../operations/InboxDeadLetters.ts"
import { ConsumerPace } from "../operations/reports/ConsumerPace.ts"
import { InboxReport } from "../operations/reports/InboxReport.ts"
import { LaneReport } from "../operations/reports/LaneReport.ts"
import { PauseDecisions } from "../operations/pauses/PauseDecisions.ts"
import { OutboxReport } from "../operations/reports/OutboxReport.ts"
import { TaskReport } from "../operations/reports/TaskReport.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import { Outbox } from "../outbox/Outbox.ts"
import { Ids } from "../platform/Ids.ts"
import { Fibers } from "../platform/Supervised.ts"
import { Wakeups } from "../platform/Wakeups.ts"
import * as SandboxControl from "../sandbox/SandboxControl.ts"
import * as SandboxSchema from "../sandbox/SandboxSchema.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { TaskWakeup } from "../tasks/TaskWakeup.ts"
import { progress, topicNames } from "./Brokers.ts"
import { consumed, consumerNames } from "./Inbox.ts"
import { taskTypeNames } from "./Tasks.ts"
import { gatewaySettings } from "./UseCases.ts"

/** The use cases that decisions need, and a way to wake the dispatchers, consumers and workers that run elsewhere. */
const useCases = PaymentOutcomes.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer)),
  Layer.provideMerge(Tasks.layer),
  Layer.provide(Outbox.layer),
  Layer.provide(Layer.merge(TaskWakeup.layer, Ids.layer)),
  Layer.provideMerge(LaneWakeup.layer),
  Layer.provideMerge(Wakeups.layerDirect)
)

/** Dead letters, tasks, pauses, faults, reports, the search of events, and unsettled payments and mail. */
const decisions = StatusReport.layer.pipe(
  Layer.provideMerge(
    Layer.mergeAll(
      OutboxDeadLetters.layer,
      OutboxReport.layer,
      InboxDeadLetters.layer,
      InboxReport.layer,
      PauseDecisions.layer,
      AuditReport.layer,
      TaskReport.layer,
      PaymentReport.layer,
      UnsettledMail.layer,
      ArmedFaults.layer(faultPoints),
      Layer.provideMerge(CustomerEvents.layer, EventSearch.layer)
    )
  )
)

/** {@link decisions} for a command, which brings its own use cases. */
export const operations = decisions.pipe(
  Layer.provide(Layer.succeed(Subscribers, { names: consumerNames })),
  Layer.provideMerge(useCases)
)

/** The services of /admin, over the use cases that the service has anyway. */
export const admin = Layer.mergeAll(
  Layer.mergeAll(ConsumerReport.layer, Layer.provideMerge(Journey.layer, ConsumerPace.layer)).pipe(
    Layer.provide(ConsumerLag.layer(consumed)),
    Layer.provideMerge(decisions)
  ),
  SettlePayment.layer,
  LaneReport.layer(topicNames),
  PaceReport.layer,
  Sums.layer,
  SandboxControl.layer,
  Layer.effect(SettingsInForce, Config.inForce),
  KnownNames.layer({ topic: topicNames, consumer: consumerNames, "task type": taskTypeNames })
)

/** How far the consumers are behind, and who publishes. Apart from {@link operations}, for it asks the broker. */
export const lag = (config: AppConfig) =>
  Layer.merge(LaneReport.layer(topicNames), Layer.provide(ConsumerLag.layer(consumed), progress(config)))

/** Without GATEWAY_URL in the operator's shell, an empty sandbox would answer in the place of the service's gateway. */
const sandboxIsThere = (config: AppConfig) =>
  Layer.effectDiscard(config.gatewayUrl === undefined ? SandboxSchema.check : Effect.void)

/** Settles payments, and asks the gateway: that of GATEWAY_URL, or the books of the sandbox, which are in the database. */
export const cashier = (config: AppConfig) =>
  SettlePayment.layer.pipe(
    Layer.provide(useCases),
    Layer.provide(Gateway.layerHttp),
    Layer.provide(Layer.merge(gatewaySettings(config), NodeHttpClient.layerUndici)),
    Layer.provide(sandboxIsThere(config)),
    Layer.provide(Fibers.layer)
  )
