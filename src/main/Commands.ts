/** The services of the operator's commands, which run beside the service's processes. A command loads these and no more. */
import { Layer } from "effect"
import { Idempotency } from "../application/Idempotency.ts"
import { UnsettledMail } from "../application/mail/UnsettledMail.ts"
import { Orders } from "../application/Orders.ts"
import { PaymentOutcomes } from "../application/PaymentOutcomes.ts"
import { Payments } from "../application/Payments.ts"
import { Subscribers } from "../application/Timeline.ts"
import { ReconciliationRuns } from "../application/reconciliation/ReconciliationRuns.ts"
import { CustomerEvents } from "../application/views/CustomerEvents.ts"
import { PaymentReport } from "../application/views/PaymentReport.ts"
import { StatusReport } from "../application/views/StatusReport.ts"
import { commandSettings, logging } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import { faultPoints } from "../FaultPoints.ts"
import { InboxDeadLetters } from "../operations/InboxDeadLetters.ts"
import { OutboxDeadLetters } from "../operations/OutboxDeadLetters.ts"
import { Replay } from "../operations/replay/Replay.ts"
import { Rebuild } from "../operations/rebuild/Rebuild.ts"
import { ArmedFaults } from "../operations/faults/ArmedFaults.ts"
import { PauseDecisions } from "../operations/pauses/PauseDecisions.ts"
import { AuditReport } from "../operations/reports/AuditReport.ts"
import { ConsumerLag } from "../operations/reports/ConsumerLag.ts"
import { EventSearch } from "../operations/reports/EventSearch.ts"
import { InboxReport } from "../operations/reports/InboxReport.ts"
import { LaneReport } from "../operations/reports/LaneReport.ts"
import { OutboxReport } from "../operations/reports/OutboxReport.ts"
import { TaskReport } from "../operations/reports/TaskReport.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import { Outbox } from "../outbox/Outbox.ts"
import { Ids } from "../platform/Ids.ts"
import * as DirectWakeups from "../platform/DirectWakeups.ts"
import { TaskWakeup } from "../tasks/TaskWakeup.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { consumed, consumerNames, topicNames } from "./Names.ts"
import { progress } from "./Progress.ts"
import { foundDatabase } from "./Storage.ts"

export { nameOf } from "./Storage.ts"

/** The use cases that decisions need, and a way to wake the dispatchers, consumers and workers that run elsewhere. */
export const useCases = PaymentOutcomes.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer)),
  Layer.provideMerge(Tasks.layer),
  Layer.provideMerge(Outbox.layer),
  Layer.provideMerge(Layer.merge(TaskWakeup.layer, Ids.layer)),
  Layer.provideMerge(LaneWakeup.layer),
  Layer.provideMerge(DirectWakeups.layer)
)

/** Dead letters, tasks, pauses, faults, reports, the search of events, and unsettled payments and mail. */
export const decisions = StatusReport.layer.pipe(
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
      ReconciliationRuns.layer,
      UnsettledMail.layer,
      ArmedFaults.layer(faultPoints),
      Layer.provideMerge(CustomerEvents.layer, EventSearch.layer)
    )
  )
)

/** {@link decisions} for a command, which brings its own use cases. */
const operations = decisions.pipe(
  Layer.provide(Layer.succeed(Subscribers, { names: consumerNames })),
  Layer.provideMerge(useCases),
  Layer.merge(Rebuild.layer),
  Layer.merge(Replay.layer)
)

/** How far the consumers are behind, and who publishes. Apart from {@link operations}, for it asks the broker. */
const lag = (config: AppConfig) =>
  Layer.merge(LaneReport.layer(topicNames), Layer.provide(ConsumerLag.layer(consumed), progress(config)))

/** What the operator's commands need of a database that is there. */
export const operatorOn = (config: AppConfig) => Layer.merge(operations, lag(config))

/** What the operator's commands need. */
export const operator = (config: AppConfig) =>
  operatorOn(config).pipe(
    Layer.provide(foundDatabase(config)),
    Layer.provide(commandSettings(config)),
    // Without this line a decision is logged to stdout, in front of what the command prints for programs.
    Layer.merge(logging(config))
  )

/** See {@link operator}. */
export type OperatorServices = Layer.Success<ReturnType<typeof operator>>
