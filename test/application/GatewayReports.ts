/** Reports of the gateway, as its webhook gets them, and the sums that they must leave. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { PaymentId } from "../../src/domain/Ids.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import * as Webhooks from "../support/Webhooks.ts"
import { webhookSecret } from "./World.ts"

export const receive = (report: object) => {
  const text = JSON.stringify({ id: "1", ...report })
  const signature = SignedMessage.sign(webhookSecret, Math.floor(Date.now() / 1000), text)
  return Webhooks.receive(signature, text)
}

/** The orders of these tests cost 1.00 EUR. */
export const whole = { amountMinor: 100, currency: "EUR" }

/** A refund that a person made at the gateway. */
export const refundThere = (charge: PaymentId, amount: object = whole) =>
  receive({ type: "refund.made", key: "re_7", charge, ...amount })
export const dispute = (charge: PaymentId, status: "opened" | "lost" | "won", key = "dp_7") =>
  receive({ type: `dispute.${status}`, key, charge, ...whole, reason: "fraud\r\nulent" })

/** Captured minus refunded, over all payments; and the price of all paid orders. */
export const books = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly kept: number; readonly paid: number }>`
    SELECT (SELECT coalesce(sum(captured_minor - refunded_minor), 0) FROM payments)::float8 AS kept,
           (SELECT coalesce(sum(total_amount_minor), 0) FROM orders WHERE status = 'paid')::float8 AS paid`
  return row!
})
