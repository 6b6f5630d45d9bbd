/** The handlers of all groups of the room. */
import { Layer } from "effect"
import type { UnsettledMail } from "../../application/mail/UnsettledMail.ts"
import type { PaymentReport } from "../../application/PaymentReport.ts"
import type { SettlePayment } from "../../application/SettlePayment.ts"
import type { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import type { InboxReport } from "../../operations/InboxReport.ts"
import type { OutboxDeadLetters } from "../../operations/OutboxDeadLetters.ts"
import type { OutboxReport } from "../../operations/OutboxReport.ts"
import type { PauseDecisions } from "../../operations/pauses/PauseDecisions.ts"
import type { TaskReport } from "../../operations/TaskReport.ts"
import * as InboxHandlers from "./InboxHandlers.ts"
import type { KnownNames } from "./KnownNames.ts"
import * as MoneyHandlers from "./MoneyHandlers.ts"
import * as OutboxHandlers from "./OutboxHandlers.ts"
import * as PausesHandlers from "./PausesHandlers.ts"
import * as TasksHandlers from "./TasksHandlers.ts"

/** The services behind them. The operator's commands have the same ones. */
export type Services =
  | InboxDeadLetters
  | InboxReport
  | KnownNames
  | OutboxDeadLetters
  | OutboxReport
  | PauseDecisions
  | PaymentReport
  | SettlePayment
  | TaskReport
  | UnsettledMail

export const layer = Layer.mergeAll(
  OutboxHandlers.layer,
  InboxHandlers.layer,
  TasksHandlers.layer,
  MoneyHandlers.layer,
  PausesHandlers.layer
)
