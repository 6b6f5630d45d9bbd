/** The handlers of all groups of {@link adminGroups}. */
import { Layer } from "effect"
import type { UnsettledMail } from "../../application/mail/UnsettledMail.ts"
import type { Journey } from "../../application/views/Journey.ts"
import type { PaceReport } from "../../application/views/PaceReport.ts"
import type { Reconciliation } from "../../application/reconciliation/Reconciliation.ts"
import type { PaymentReport } from "../../application/views/PaymentReport.ts"
import type { SettlePayment } from "../../application/SettlePayment.ts"
import type { StatusReport } from "../../application/views/StatusReport.ts"
import type { Broker } from "../../brokers/Broker.ts"
import type { ConsumerPace } from "../../operations/reports/ConsumerPace.ts"
import type { Sums } from "../../application/views/Sums.ts"
import type { ArmedFaults } from "../../operations/faults/ArmedFaults.ts"
import type { Doctor } from "../../operations/doctor/Doctor.ts"
import type { ConsumerReport } from "../../operations/reports/ConsumerReport.ts"
import type { CustomerEvents } from "../../application/views/CustomerEvents.ts"
import type { AuditReport } from "../../operations/reports/AuditReport.ts"
import type { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import type { InboxReport } from "../../operations/reports/InboxReport.ts"
import type { LaneReport } from "../../operations/reports/LaneReport.ts"
import type { OutboxDeadLetters } from "../../operations/OutboxDeadLetters.ts"
import type { OutboxReport } from "../../operations/reports/OutboxReport.ts"
import type { PauseDecisions } from "../../operations/pauses/PauseDecisions.ts"
import type { TaskReport } from "../../operations/reports/TaskReport.ts"
import type { PoolStats } from "../../postgres/Database.ts"
import * as AuditHandlers from "./AuditHandlers.ts"
import * as DoctorHandlers from "./DoctorHandlers.ts"
import * as EventsHandlers from "./EventsHandlers.ts"
import * as FaultsHandlers from "./FaultsHandlers.ts"
import * as InboxHandlers from "./InboxHandlers.ts"
import * as InstallationHandlers from "./InstallationHandlers.ts"
import type { KnownNames } from "./KnownNames.ts"
import * as JourneyHandlers from "./JourneyHandlers.ts"
import * as LiveHandlers from "./LiveHandlers.ts"
import { LiveStream } from "./LiveStream.ts"
import * as MoneyHandlers from "./MoneyHandlers.ts"
import * as OutboxHandlers from "./OutboxHandlers.ts"
import { Overviews } from "./Overviews.ts"
import * as PausesHandlers from "./PausesHandlers.ts"
import * as ReconciliationHandlers from "./ReconciliationHandlers.ts"
import * as SessionHandlers from "./SessionHandlers.ts"
import * as SumsHandlers from "./SumsHandlers.ts"
import * as TasksHandlers from "./TasksHandlers.ts"

/** The services behind them. The operator's commands have the same ones. */
export type Services =
  | ArmedFaults
  | AuditReport
  | ConsumerReport
  | CustomerEvents
  | Doctor
  | InboxDeadLetters
  | Broker
  | ConsumerPace
  | InboxReport
  | Journey
  | KnownNames
  | LaneReport
  | OutboxDeadLetters
  | OutboxReport
  | PauseDecisions
  | PaceReport
  | PaymentReport
  | PoolStats
  | Reconciliation
  | SettlePayment
  | StatusReport
  | Sums
  | TaskReport
  | UnsettledMail

export const layer = Layer.mergeAll(
  SessionHandlers.layer,
  OutboxHandlers.layer,
  InboxHandlers.layer,
  TasksHandlers.layer,
  MoneyHandlers.layer,
  PausesHandlers.layer,
  JourneyHandlers.layer,
  // One stream for all who listen.
  LiveHandlers.layer.pipe(Layer.provide(LiveStream.layer), Layer.provide(Overviews.layer)),
  EventsHandlers.layer,
  FaultsHandlers.layer,
  AuditHandlers.layer,
  InstallationHandlers.layer,
  SumsHandlers.layer,
  ReconciliationHandlers.layer,
  DoctorHandlers.layer
)
