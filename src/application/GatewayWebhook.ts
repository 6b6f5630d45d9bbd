/**
 * The gateway's webhook: a signed report of an outcome. A report may come before the answer, after it, twice, or for an unknown payment.
 *
 * A report counts as much as an answer, and both are recorded by {@link PaymentOutcomes}: their order does not matter.
 */
import { Clock, Context, Effect, Layer, Option, type Redacted, Result, Schema } from "effect"
import { PaymentId } from "../domain/Ids.ts"
import { paymentOfRefundKey } from "../domain/Payment.ts"
import * as SignedMessage from "../platform/SignedMessage.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"
import { type PaymentNotFound, Payments } from "./Payments.ts"

/** The secret that the gateway signs with. Without one every report is refused. */
export const WebhookSettings = Context.Reference<{ readonly secret: Redacted.Redacted | undefined }>(
  "paid-once/application/WebhookSettings",
  { defaultValue: () => ({ secret: undefined }) }
)

/** The header that carries the signature. */
export const signatureHeader = "gateway-signature"

/** How old a signature may be. The clocks of two companies differ by seconds, and a repeated report is signed anew. Stripe's default. */
const toleranceSeconds = 300

/** The report is not signed by the gateway, or can't be read. */
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
    /** Verifies a report by its signature and its exact text, and records the outcome that it reports. */
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
        // Most reports are of an outcome that is recorded already: those take no lock.
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
          // An unknown kind of report is accepted: the gateway would send it again after a refusal.
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
