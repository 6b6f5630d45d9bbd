/** Requests about an order beside paying it, and the reports that the gateway sends. */
import { Effect, Redacted, Result } from "effect"
import { CancelOrder } from "../../src/application/CancelOrder.ts"
import { RefundOrder } from "../../src/application/RefundOrder.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import * as Webhooks from "../support/Webhooks.ts"
import type { LabTime } from "./Actor.ts"
import type { Fact } from "./ModelGateway.ts"
import { idOf, type KnownOrders, make, orderLetters, type Request } from "./Requests.ts"

/** The order's status in an answer's body. */
const statusOf = (body: string): unknown => JSON.parse(body).status

export const cancel = (order: number, known: KnownOrders): Request =>
  make(
    `cancel order ${orderLetters[order]}`,
    order,
    false,
    Effect.gen(function* () {
      const id = yield* idOf(order, known)
      const result = yield* Effect.result((yield* CancelOrder).cancel(id))
      if (Result.isSuccess(result)) {
        const text = JSON.stringify({ status: statusOf(result.success.body) })
        return { _tag: "Answer", answer: { says: "cancelled", order: id, payment: undefined, text } }
      }
      if (result.failure._tag !== "OrderStateConflict") return yield* Effect.die(result.failure)
      return { _tag: "Refused", order: id, status: result.failure.status }
    }),
    { isKeyed: false }
  )

export const refund = (order: number, known: KnownOrders): Request =>
  make(
    `refund order ${orderLetters[order]}`,
    order,
    false,
    Effect.gen(function* () {
      const id = yield* idOf(order, known)
      const result = yield* Effect.result((yield* RefundOrder).refund(id))
      if (Result.isSuccess(result)) {
        const { body, paymentId } = result.success
        const text = JSON.stringify({ status: statusOf(body) })
        return { _tag: "Answer", answer: { says: "refunding", order: id, payment: paymentId, text } }
      }
      if (result.failure._tag !== "OrderStateConflict") return yield* Effect.die(result.failure)
      return { _tag: "Refused", order: id, status: result.failure.status }
    }),
    { isKeyed: false }
  )

export const webhookSecret = Redacted.make("the lab's")

/** A payment id that the service does not know. */
const unknownPayment = "01890a5d-b1f4-7a53-9f5e-000000000001"

const phrases: Readonly<Record<Fact["type"], string>> = {
  "charge.captured": "that the payment was captured",
  "charge.declined": "that the payment was declined",
  "refund.made": "that the payment was given back"
}

/** A report of what has happened at the gateway, signed when it is sent. Without `fact` it is about an unknown payment. */
export const report = (fact: Fact | undefined, time: LabTime): Request =>
  make(
    `hear from the gateway ${fact === undefined ? "of an unknown payment" : phrases[fact.type]}`,
    -1,
    false,
    Effect.gen(function* () {
      const { key, reason, type } = fact ?? { key: unknownPayment, type: "charge.captured", reason: undefined }
      const text = JSON.stringify({ type, key, ...(reason === undefined ? {} : { reason }) })
      const signature = SignedMessage.sign(webhookSecret, Math.floor(time.millis / 1_000), text)
      yield* Effect.orDie(Webhooks.receive(signature, text))
      return { _tag: "Done" }
    })
  )
