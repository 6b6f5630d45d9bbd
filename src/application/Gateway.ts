/**
 * The payment gateway, as the use cases need it. Money moves there and nowhere else.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import type { Money } from "../domain/Money.ts"
import type { PaymentId, PaymentMethod } from "../domain/Payment.ts"

/** The gateway's final word on a charge. */
export const ChargeOutcome = Schema.Union([
  Schema.TaggedStruct("Captured", {}),
  Schema.TaggedStruct("Declined", { reason: Schema.String })
])
export type ChargeOutcome = typeof ChargeOutcome.Type

/** Whether the charge happened is not known: no answer, a late one, or one that says nothing. It is never read as "failed". */
export class OutcomeUnknown extends Schema.TaggedError<OutcomeUnknown>()("OutcomeUnknown", { reason: Schema.String }) {
  override get message() {
    return `the gateway's outcome is unknown: ${this.reason}`
  }
}

/** What to charge. The payment's id is the idempotency key: asking again for the same payment never charges again. */
export interface Charge {
  readonly paymentId: PaymentId
  readonly amount: Money
  readonly paymentMethod: PaymentMethod
}

/** Where the gateway is and how long an answer may take. */
export class GatewaySettings extends Context.Service<
  GatewaySettings,
  { readonly url: string; readonly timeoutMillis: number }
>()("paid-once/application/GatewaySettings") {}

/** What somebody else's server gave as a reason, fit to be stored and sent: bounded, and without what Postgres can't hold. */
const presentable = (reason: string) => reason.replaceAll("\u0000", "").toWellFormed().slice(0, maxReasonLength)

/** A sentence or two. */
const maxReasonLength = 500

const ChargeResponse = Schema.Union([
  Schema.Struct({ status: Schema.Literal("captured") }),
  Schema.Struct({ status: Schema.Literal("declined"), reason: Schema.String })
])

export class Gateway extends Context.Service<
  Gateway,
  {
    /** Charges once for the payment, however often it is asked. */
    readonly charge: (charge: Charge) => Effect.Effect<ChargeOutcome, OutcomeUnknown>
  }
>()("paid-once/application/Gateway") {
  /** Speaks HTTP to the gateway at {@link GatewaySettings}. It does not retry: whoever owns the payment decides. */
  static readonly layerHttp: Layer.Layer<Gateway, never, GatewaySettings | HttpClient.HttpClient> = Layer.effect(
    Gateway,
    Effect.gen(function* () {
      const { timeoutMillis, url } = yield* GatewaySettings
      const client = yield* HttpClient.HttpClient

      const charge = Effect.fn("Gateway.charge")(({ amount, paymentId, paymentMethod }: Charge) =>
        HttpClientRequest.post(`${url}/charges`).pipe(
          HttpClientRequest.setHeader("idempotency-key", paymentId),
          HttpClientRequest.bodyJsonUnsafe({ ...amount, paymentMethod }),
          client.execute,
          // 200 and 402 are the gateway's two final words. Anything else says nothing about the money.
          Effect.filterOrFail(
            (response) => response.status === 200 || response.status === 402,
            (response) => new OutcomeUnknown({ reason: `it answered ${response.status}` })
          ),
          Effect.flatMap((response) =>
            Effect.flatMap(HttpClientResponse.schemaBodyJson(ChargeResponse)(response), (body) =>
              // Status and body must tell the same: a contradiction is no word to act on.
              (response.status === 200) === (body.status === "captured")
                ? Effect.succeed(body)
                : Effect.fail(new OutcomeUnknown({ reason: `it answered ${response.status} with "${body.status}"` }))
            )
          ),
          Effect.map((body): ChargeOutcome =>
            body.status === "captured" ? { _tag: "Captured" } : { _tag: "Declined", reason: presentable(body.reason) }
          ),
          Effect.timeout(timeoutMillis),
          Effect.mapError((error) =>
            error._tag === "OutcomeUnknown" ? error : new OutcomeUnknown({ reason: error.message })
          )
        )
      )
      return Gateway.of({ charge })
    })
  )
}
