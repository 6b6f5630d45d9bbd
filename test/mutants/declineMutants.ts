/** Mistakes about a charge that the gateway has declined and captured, and about the lists of orders under way. */
import type { Mutant } from "./mutants.ts"

const outcomes = "src/application/PaymentOutcomes.ts"
const payments = "src/application/Payments.ts"
const file = "test/application/AfterADecline.test.ts"

export const declineMutants: ReadonlyArray<Mutant> = [
  {
    name: "keeps-declined-money",
    breaks: "the gateway holds money for a payment that it had declined, and nobody gives it back",
    file: "src/application/GatewayWebhook.ts",
    find: `? payment.capturedMinor > 0 &&`,
    replace: `? (payment.capturedMinor > 0 || payment.status === "declined") &&`,
    seenBy: { file, test: "a capture after a decline is given back, once" }
  },
  {
    name: "asks-for-no-refund",
    breaks: "a capture after a decline waits for a refund that nobody asks for",
    file: outcomes,
    find: "        yield* giveBack(id)\n",
    replace: "",
    seenBy: { file, test: "a capture after a decline is given back, once" }
  },
  {
    name: "pays-beside-declined-money",
    breaks: "an order is paid a second time while the gateway still holds the money of a declined payment",
    file: payments,
    find: "other.status IN ('manual', 'refunding')",
    replace: "other.status = 'nothing'",
    seenBy: { file, test: "a capture after a decline is given back, once" }
  },
  {
    name: "manual-keeps-declined-money",
    breaks: "the right amount that follows a wrong one after a decline is ignored, and its money stays at the gateway",
    file: outcomes,
    find: `if (payment.wasDeclined && payment.capturedMinor === 0 && outcome._tag === "Captured") {`,
    replace: `if (payment.status === "declined" && outcome._tag === "Captured") {`,
    seenBy: { file, test: "a capture of another amount after a decline" }
  },
  {
    name: "refunds-the-other-payments-order",
    breaks: "the refund of a declined payment refunds an order that another payment has paid",
    file: outcomes,
    find: " && !payment.wasDeclined) yield*",
    replace: ") yield*",
    seenBy: { file, test: "a capture after a decline is given back where the order was paid meanwhile" }
  },
  {
    name: "refunds-the-wrong-payment",
    breaks: "the order's own refund finds the payment that was declined, and its money stays",
    file: payments,
    find: "                AND p.decline_reason IS NULL FOR UPDATE",
    replace: "                ORDER BY p.id FOR UPDATE",
    seenBy: { file, test: "a capture after a decline is given back where the order was paid meanwhile" }
  },
  {
    name: "believes-its-own-decline",
    breaks: "a refund or a dispute of a charge that is declined here is a line in the log, whatever the gateway holds",
    file: "src/application/GatewayWebhook.ts",
    find: "if (payment.capturedMinor > 0) return payment",
    replace: `if (payment.capturedMinor > 0 || payment.status === "declined") return payment`,
    seenBy: { file, test: "a refund or a dispute of a declined payment" }
  },
  {
    name: "contradicts-in-silence",
    breaks: "a chargeback of a refunded payment is a line in the log that no alarm counts",
    file: "src/application/PaymentAlarms.ts",
    find: "  yield* afterCommit(Metric.update(contradictionsTotal, 1))\n",
    replace: "",
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "each contradiction is counted" }
  },
  {
    name: "refunded-is-refunded",
    breaks: "a refund of another amount that is reported after the refund is ignored",
    file: "src/application/GatewayWebhook.ts",
    find: `payment.status === "refunded" && !ReportedAmount.contradicts(report, payment)`,
    replace: `payment.status === "refunded"`,
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "each contradiction is counted" }
  },
  {
    name: "believes-the-first-amount",
    breaks: "an answer with another amount than the report before it is ignored",
    file: outcomes,
    find: `if (outcome._tag === "Captured" && ReportedAmount`,
    replace: `if (payment.status === "charging" && outcome._tag === "Captured" && ReportedAmount`,
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "an answer that contradicts the report before it" }
  },
  {
    name: "forgets-the-answer-given",
    breaks: "a request that was answered hears something else once a contradiction has come",
    file: outcomes,
    find: `        return { status: "manual" as const, answer }
      })

      /** The caller holds`,
    replace: `        return { status: "manual" as const, answer: undefined }
      })

      /** The caller holds`,
    seenBy: { file: "test/application/AtTheGateway.test.ts", test: "an answer that contradicts the report before it" }
  },
  {
    name: "lists-through-all-orders",
    breaks: "one request for the orders that are refunding reads every paid order",
    file: "src/application/Orders.ts",
    find: "p.order_id IS NOT NULL AND ",
    replace: "",
    seenBy: { file: "test/application/OrderLists.test.ts", test: "the lists of paying and of refunding" }
  }
]
