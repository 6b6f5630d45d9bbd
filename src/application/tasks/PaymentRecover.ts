/** The task `payment.recover`: looks up a charge or a refund until its outcome is stored, even where the process that began it has died. */
import { Context, Schema } from "effect"
import { PaymentId } from "../../domain/Ids.ts"
import { paymentOfRefundKey, refundKeyOf } from "../../domain/Payment.ts"
import * as Backoff from "../../platform/Backoff.ts"
import type { TaskType } from "../../tasks/TaskType.ts"

const Payload = Schema.Struct({ paymentId: PaymentId })

/** Enqueued in the transaction of the intent, and settled in the transaction of the outcome. */
export const paymentRecover: TaskType<typeof Payload.Type> = {
  name: "payment.recover",
  payload: Payload,
  // Each run mostly waits for the gateway: eight suffice for a hundred a second, and leave the gateway capacity for payments.
  concurrency: 8,
  // For its transactions on a busy database; the handler adds the gateway's timeout.
  timeoutMillis: 30_000
}

/** Whether a stored payload is one of {@link paymentRecover}. */
export const isRecoverPayload = Schema.is(Payload)

/** What a recovery looks up. A payment's charge and its refund have a recovery each. */
export type Phase = "charge" | "refund"

/** The idempotency key of the task that recovers the payment's charge, or its refund. */
export const recoveryKeyOf = (id: PaymentId, phase: Phase): string => (phase === "charge" ? id : refundKeyOf(id))

/** The phase of the recovery that has this idempotency key. */
export const phaseOfRecovery = (idempotencyKey: string | null): Phase =>
  idempotencyKey === null || paymentOfRefundKey(idempotencyKey) === undefined ? "charge" : "refund"

/** When a payment without an outcome is looked up. There is one run for each delay; after the last one the payment becomes `manual`. */
export const RecoverySettings = Context.Reference<{
  /** The first delay counts from the moment when the outcome turned out to be unknown, each further one from the run before. */
  readonly delaysMillis: ReadonlyArray<number>
}>("paid-once/application/tasks/RecoverySettings", {
  // Some nine hours: inside the first half of the default key retention, in which the key may be used again.
  defaultValue: () => ({ delaysMillis: Backoff.paymentRecoverDelaysMillis })
})
