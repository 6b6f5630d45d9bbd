/** The handlers of all groups of {@link adminGroups}. */
import { Layer } from "effect"
import type { UnsettledMail } from "../../application/mail/UnsettledMail.ts"
import type { PaymentReport } from "../../application/PaymentReport.ts"
import type { SettlePayment } from "../../application/SettlePayment.ts"
import type { Sums } from "../../application/Sums.ts"
import type { ArmedFaults } from "../../operations/faults/ArmedFaults.ts"
import type { ConsumerReport } from "../../operations/ConsumerReport.ts"
import type { CustomerEvents } from "../../application/CustomerEvents.ts"
import type { AuditReport } from "../../operations/AuditReport.ts"
import type { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import type { InboxReport } from "../../operations/InboxReport.ts"
import type { OutboxDeadLetters } from "../../operations/OutboxDeadLetters.ts"
import type { OutboxReport } from "../../operations/OutboxReport.ts"
import type { PauseDecisions } from "../../operations/pauses/PauseDecisions.ts"
import type { TaskReport } from "../../operations/TaskReport.ts"
import * as AuditHandlers from "./AuditHandlers.ts"
import * as EventsHandlers from "./EventsHandlers.ts"
import * as FaultsHandlers from "./FaultsHandlers.ts"
import * as InboxHandlers from "./InboxHandlers.ts"
import * as InstallationHandlers from "./InstallationHandlers.ts"
import type { KnownNames } from "./KnownNames.ts"
import * as MoneyHandlers from "./MoneyHandlers.ts"
import * as OutboxHandlers from "./OutboxHandlers.ts"
import * as PausesHandlers from "./PausesHandlers.ts"
import * as SessionHandlers from "./SessionHandlers.ts"
import * as SumsHandlers from "./SumsHandlers.ts"
import * as TasksHandlers from "./TasksHandlers.ts"

/** The services behind them. The operator's commands have the same ones. */
export type Services =
  | ArmedFaults
  | AuditReport
  | ConsumerReport
  | CustomerEvents
  | InboxDeadLetters
  | InboxReport
  | KnownNames
  | OutboxDeadLetters
  | OutboxReport
  | PauseDecisions
  | PaymentReport
  | SettlePayment
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
  EventsHandlers.layer,
  FaultsHandlers.layer,
  AuditHandlers.layer,
  InstallationHandlers.layer,
  SumsHandlers.layer
)
