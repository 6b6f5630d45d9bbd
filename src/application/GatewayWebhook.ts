/**
 * What the gateway reports by itself: an outcome, first, last, twice, or of a payment that nobody here knows. The report is as good as an
 * answer, for it is signed; and it goes the same way ({@link PaymentOutcomes}), so the order of the two does not matter.
 */
import { PaymentId } from "../domain/Ids.ts"
import { Clock, Context, Effect, Layer, Option, type Redacted, Result, Schema } from "effect"
import { paymentOfRefundKey } from "../domain/Payment.ts"
import * as SignedMessage from "../platform/SignedMessage.ts"
import { type PaymentNotFound, Payments } from "./Payments.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"

/** The secret that the gateway signs with; without one nothing is believed. */
export const WebhookSettings = Context.Reference<{ readonly secret: Redacted.Redacted | undefined }>(
  "paid-once/application/WebhookSettings",
  { defaultValue: () => ({ secret: undefined }) }
)

/** The header that carries the signature. */
export const signatureHeader = "gateway-signature"

/** Clocks of two companies differ by seconds, and a report that is repeated is signed anew. As Stripe has it. */
const toleranceSeconds = 300

/** The report is not the gateway's, or not one that can be read. */
export class WebhookRefused extends Schema.TaggedError<WebhookRefused>()("WebhookRefused", {
  reason: Schema.String,
  isSignature: Schema.Boolean
}) {
  override get message() {
    return this.reason
  }
}

const Key = { key: Schema.String }
const Known = Schema.Union([
  Schema.Struct({ type: Schema.Literal("charge.captured"), ...Key }),
  Schema.Struct({ type: Schema.Literal("charge.declined"), reason: Schema.String, ...Key }),
  Schema.Struct({ type: Schema.Literal("refund.made"), ...Key })
])
const decodeReport = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Struct({ type: Schema.String })))
const decodeKnown = Schema.decodeUnknownOption(Schema.fromJsonString(Known))
const decodeId = Schema.decodeUnknownOption(PaymentId)

export class GatewayWebhook extends Context.Service<
  GatewayWebhook,
  {
    /** Takes a report, by its signature and its exact text. What it says is stored when this succeeds. */
    readonly receive: (signature: string, text: string) => Effect.Effect<void, WebhookRefused>
  }
>()("paid-once/application/GatewayWebhook") {
  static readonly layer: Layer.Layer<GatewayWebhook, never, Payments | PaymentOutcomes> = Layer.effect(
    GatewayWebhook,
    Effect.gen(function* () {
      const { secret } = yield* WebhookSettings
      const payments = yield* Payments
      const outcomes = yield* PaymentOutcomes

      const verify = Effect.fnUntraced(function* (signature: string, text: string) {
        if (secret === undefined) {
          return yield* new WebhookRefused({ reason: "no secret is set (GATEWAY_WEBHOOK_SECRET)", isSignature: true })
        }
        const nowSeconds = Math.floor((yield* Clock.currentTimeMillis) / 1000)
        const verified = SignedMessage.verify(secret, signature, text, nowSeconds, toleranceSeconds)
        if (Result.isFailure(verified)) {
          return yield* new WebhookRefused({ reason: `${signatureHeader} ${verified.failure}`, isSignature: true })
        }
      })

      const apply = Effect.fnUntraced(function* (
        report: typeof Known.Type,
        id: PaymentId
      ): Effect.fn.Return<void, PaymentNotFound> {
        // Most reports speak of what is known already: no lock for those.
        const { capturedMinor, status } = yield* payments.get(id)
        const isOpen = report.type === "refund.made" ? capturedMinor > 0 && status !== "refunded" : capturedMinor === 0
        if (!isOpen || status === "declined") return
        if (report.type === "refund.made") yield* outcomes.refunded(id)
        else {
          yield* outcomes.charged(
            id,
            report.type === "charge.captured" ? { _tag: "Captured" } : { _tag: "Declined", reason: report.reason }
          )
        }
      })

      return GatewayWebhook.of({
        receive: Effect.fn("GatewayWebhook.receive")(function* (signature, text) {
          yield* verify(signature, text)
          if (Option.isNone(decodeReport(text))) {
            return yield* new WebhookRefused({ reason: "the body is no report of the gateway", isSignature: false })
          }
          const report = decodeKnown(text)
          // A kind that we don't know is none of our business, and would only be sent again.
          if (Option.isNone(report))
            return yield* Effect.logInfo("a report of the gateway is of no kind that is read here")
          const { key, type } = report.value
          const id = decodeId(type === "refund.made" ? paymentOfRefundKey(key) : key)
          if (Option.isNone(id))
            return yield* Effect.logWarning(`the gateway reports ${type} of a payment unknown here`)
          yield* Effect.catchTag(apply(report.value, id.value), "PaymentNotFound", () =>
            Effect.logWarning(`the gateway reports ${type} of a payment unknown here`)
          )
        })
      })
    })
  )
}
