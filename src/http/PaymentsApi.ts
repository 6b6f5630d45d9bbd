/** The groups `payments` and `webhooks` of the API: a payment as it stands, and what the gateway reports about it. */
import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { PaymentId } from "../domain/Ids.ts"
import { Payment } from "../domain/Payment.ts"
import { problems, uuidV7 } from "./ApiParts.ts"

/** A payment's id in a path or query. */
export const PaymentIdText = uuidV7("The payment's id").pipe(
  Schema.decodeTo(PaymentId, SchemaTransformation.toLowerCase())
)

export const PaymentsApi = HttpApiGroup.make("payments")
  .add(
    HttpApiEndpoint.get("get", "/payments/:id", {
      params: { id: PaymentIdText },
      success: Payment,
      error: problems(400, 404, 503)
    }).annotateMerge(OpenApi.annotations({ summary: "Get a payment" }))
  )
  .annotateMerge(OpenApi.annotations({ title: "Payments", description: "Attempts to pay an order." }))

/**
 * A report has some 300 bytes, and one that brings the whole charge with it, as Stripe's does, some kilobytes. A longer reason is cut later: a
 * report that is refused for its length would be refused for ever. Bytes without a signature of ours are never parsed.
 */
export const maxReportBytes = 1_048_576

export const WebhooksApi = HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.post("gateway", "/webhooks/gateway", {
      payload: Schema.Struct({
        id: Schema.String,
        type: Schema.String,
        key: Schema.String,
        charge: Schema.optionalKey(Schema.String),
        amountMinor: Schema.optionalKey(Schema.Int),
        currency: Schema.optionalKey(Schema.String),
        reason: Schema.optionalKey(Schema.String)
      }).annotate({ identifier: "GatewayReport" }),
      success: Schema.Struct({ received: Schema.Literal(true) }),
      error: problems(400, 401, 413, 415, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Hear what the gateway did",
        description:
          "For the payment gateway: the header `gateway-signature` is `t=<Unix seconds>,v1=<hex>`, HMAC-SHA256 of `<t>.<body>` under the shared " +
          "secret; while a secret is replaced, a `v1` for each. `type` is `charge.captured`, `charge.declined`, `refund.made`, `dispute.opened`, " +
          "`dispute.lost` or `dispute.won`; `key` names the charge, refund or dispute, and `charge` the charge of a refund or dispute. A report may " +
          "come first, last, twice, or speak of a payment that is unknown here: all are answered 200. 503 asks for a report again: its charge has no " +
          `outcome here yet. 413 refuses a report of more than ${maxReportBytes} bytes.`
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Webhooks", description: "What the gateway reports." }))
