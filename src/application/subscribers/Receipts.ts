/** Receipts: a paid order gets a receipt by mail, a refunded one a notice. The mail is a task: nothing is sent from this transaction. */
import { Effect } from "effect"
import type { Envelope } from "../../brokers/Envelope.ts"
import { ordersTopic } from "../../domain/Events.ts"
import { format, type Money } from "../../domain/Money.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { addressOf } from "../mail/CustomerAddress.ts"
import { decodeOrderEvent } from "../OrderEvents.ts"
import { emailType } from "../tasks/Email.ts"

const receipt = (orderId: string, amount: Money) => ({
  kind: "receipt" as const,
  subject: `Receipt for order ${orderId}`,
  text: `Thank you.\n\nWe have received ${format(amount)} for order ${orderId}.\n`
})

const refundNotice = (orderId: string, amount: Money) => ({
  kind: "refund-notice" as const,
  subject: `Refund of order ${orderId}`,
  text: `We have refunded ${format(amount)} for order ${orderId}.\n`
})

export const receipts: Subscriber<Tasks> = {
  name: "receipts",
  topic: ordersTopic,
  firstSight: "from-version-1",
  // The task of an event's mail has the event's id as its key.
  replay: "again-while-tasks-are-kept",
  handle: Effect.fn("Receipts.handle")(function* (envelope: Envelope) {
    const tasks = yield* Tasks
    const { _tag, data } = yield* decodeOrderEvent(envelope)
    if (_tag !== "OrderPaid" && _tag !== "OrderRefunded") return
    const mail = (_tag === "OrderPaid" ? receipt : refundNotice)(envelope.aggregateId, data.amount)
    const to = yield* addressOf(data.customerId)
    // The event's id is the mail's key: whatever happens to this consumer's memory, an event asks for one mail.
    yield* tasks.enqueue(emailType, { ...mail, to }, { idempotencyKey: envelope.eventId })
  })
}
