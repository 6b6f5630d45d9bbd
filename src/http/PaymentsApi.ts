/** The groups `payments` and `webhooks` of the API: a payment as it stands, and what the gateway reports about it. */
import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { PaymentId } from "../domain/Ids.ts"
import { Payment } from "../domain/Payment.ts"
import { problems, uuidV7 } from "./ApiParts.ts"

const PaymentIdText = uuidV7("The payment's id").pipe(Schema.decodeTo(PaymentId, SchemaTransformation.toLowerCase()))

export const PaymentsApi = HttpApiGroup.make("payments")
  .add(
    HttpApiEndpoint.get("get", "/payments/:id", {
      params: { id: PaymentIdText },
      success: Payment,
      error: problems(400, 404, 503)
    }).annotateMerge(OpenApi.annotations({ summary: "Get a payment" }))
  )
  .annotateMerge(OpenApi.annotations({ title: "Payments", description: "Attempts to pay an order." }))

export const WebhooksApi = HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.post("gateway", "/webhooks/gateway", {
      payload: Schema.Struct({ id: Schema.String, type: Schema.String, key: Schema.String }).annotate({
        identifier: "GatewayReport"
      }),
      success: Schema.Struct({ received: Schema.Literal(true) }),
      error: problems(400, 401, 413, 415, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Hear what the gateway did",
        description:
          "For the payment gateway: the header `gateway-signature` is `t=<Unix seconds>,v1=<hex>`, HMAC-SHA256 of `<t>.<body>` under the shared " +
          "secret. A report may come first, last, twice, or speak of a payment that is unknown here: all are answered 200."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Webhooks" }))
