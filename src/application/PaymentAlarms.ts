/** The lines of the log that tell an operator of a payment, and the count of contradictions. Each is written once its transaction has committed. */
import { Effect, Metric } from "effect"
import { format } from "../domain/Money.ts"
import type { Payment } from "../domain/Payment.ts"
import { Transaction } from "../platform/Transaction.ts"
import { presentableText } from "./Gateway.ts"
import { contradictionsTotal } from "./PaymentMetrics.ts"

/** What is to be told of a payment that a person has to look at. */
export const needsPerson = (reason: string, advice: string): string =>
  `needs a person: ${presentableText(reason)}. ${advice}`

/** An error in the log. `what` continues the sentence that begins with the payment. */
export const tell = Effect.fnUntraced(function* (payment: Payment, what: string) {
  const { afterCommit } = yield* Transaction
  yield* afterCommit(
    Effect.logError(`payment ${payment.id} of order ${payment.orderId}, of ${format(payment)}, ${what}`)
  )
})

/** Tells that the gateway contradicts what is recorded of the payment, and counts it. */
export const contradiction = Effect.fnUntraced(function* (payment: Payment, what: string) {
  const { afterCommit } = yield* Transaction
  yield* tell(payment, what)
  yield* afterCommit(Metric.update(contradictionsTotal, 1))
})
