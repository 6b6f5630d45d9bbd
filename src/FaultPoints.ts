/** Every fault point of the service, with the actions that mean something there: what the variable `FAULTS` may say. */
import type { Catalogue, FaultAction } from "./platform/FaultInjection.ts"
import type { FaultPoint } from "./platform/Faults.ts"

/** At a mere point, between two steps. */
const between: ReadonlyArray<FaultAction> = ["crash", "fail", "delay"]
/** At a point around an operation, which can be repeated, or lose its answer. */
const around: ReadonlyArray<FaultAction> = [...between, "duplicate", "lose-ack"]

const names: ReadonlyArray<FaultPoint> = [
  "pay.after-intent",
  "pay.after-charge",
  "pay.before-commit",
  "pay.after-commit",
  "refund.after-intent",
  "refund.before-commit",
  "recover.after-lookup",
  "recover.after-charge",
  "recover.after-refund",
  "outbox.after-append",
  "outbox.after-commit",
  "outbox.after-wake",
  "dispatcher.after-acquire",
  "dispatcher.after-fetch",
  "dispatcher.after-publish",
  "dispatcher.after-mark",
  "dispatcher.after-hold",
  "dispatcher.after-release",
  "consumer.after-decode",
  "consumer.before-handler",
  "consumer.before-commit",
  "consumer.after-commit",
  "consumer.after-offset",
  "task.after-claim",
  "task.during-run",
  "task.after-handler",
  "task.after-finish",
  "mail.after-send"
]

export const faultPoints: Catalogue = new Map<FaultPoint, ReadonlyArray<FaultAction>>([
  ...names.map((name) => [name, between] as const),
  ["dispatcher.before-publish", around]
])
