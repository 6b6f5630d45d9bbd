/** `payment.recover`: somebody looks after a charge or a refund until the gateway's word on it is stored, whoever began it and died. */
import { PaymentId } from "../../domain/Ids.ts"
import { Context, Schema } from "effect"
import { refundKeyOf } from "../../domain/Payment.ts"
import * as Backoff from "../../platform/Backoff.ts"
import type { TaskType } from "../../tasks/TaskType.ts"

const Payload = Schema.Struct({ paymentId: PaymentId })

/** Enqueued with the intent, in one transaction, and settled with the outcome. */
export const paymentRecover: TaskType<typeof Payload.Type> = {
  name: "payment.recover",
  payload: Payload,
  // Each waits for the gateway, and not for us: eight keep a hundred a second going, and leave the gateway room for payments.
  concurrency: 8,
  // For its transactions, on a database that is busy; the handler adds what the gateway may take.
  timeoutMillis: 30_000
}

/** Whether a stored payload is one of {@link paymentRecover}. */
export const isRecoverPayload = Schema.is(Payload)

/** The key of the task that looks after the payment's charge, and of the one that looks after its refund. */
export const recoveryKeyOf = (id: PaymentId, phase: "charge" | "refund"): string =>
  phase === "charge" ? id : refundKeyOf(id)

/** When a payment whose outcome is unknown is looked up; there are as many runs as delays, and then it is `manual`. */
export const RecoverySettings = Context.Reference<{
  /** The first counts from when the outcome was found to be unknown, each other one from the run before. */
  readonly delaysMillis: ReadonlyArray<number>
}>("paid-once/application/tasks/RecoverySettings", {
  // Some nine hours, inside the first half of a day, in which the key may be used again.
  defaultValue: () => ({ delaysMillis: Backoff.paymentRecoverDelaysMillis })
})
