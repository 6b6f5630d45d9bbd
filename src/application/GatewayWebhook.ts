/**
 * The gateway's webhook: a signed report of an outcome, of a refund that somebody made at the gateway, or of a dispute. A report may come before
 * the answer, after it, twice, or for an unknown payment.
 *
 * A report counts as much as an answer, for its signature covers every byte of it. Both are recorded by {@link PaymentOutcomes}: their order does
 * not matter. A refund or a dispute says that there was a capture. Where that is not recorded yet, it is looked up first.
 */
import { Clock, Context, Effect, Layer, Metric, Option, type Redacted, Result, Schema } from "effect"
import { PaymentId } from "../domain/Ids.ts"
import { type Payment, paymentOfRefundKey, refundKeyOf } from "../domain/Payment.ts"
import * as ReportedAmount from "../domain/ReportedAmount.ts"
import * as SignedMessage from "../platform/SignedMessage.ts"
import * as Turn from "../platform/Turn.ts"
import { Gateway, presentableText } from "./Gateway.ts"
import { contradictionsTotal } from "./PaymentMetrics.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"
import { type PaymentNotFound, Payments } from "./Payments.ts"

/** The secrets that the gateway may sign with, the newest first. Without one every report is refused. */
export const WebhookSettings = Context.Reference<{ readonly secrets: ReadonlyArray<Redacted.Redacted> }>(
  "paid-once/application/WebhookSettings",
  { defaultValue: () => ({ secrets: [] }) }
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

/** The report is about a charge that has no outcome here yet, and the gateway can't be asked now. It has to come again. */
export class ReportTooEarly extends Schema.TaggedError<ReportTooEarly>()("ReportTooEarly", { paymentId: PaymentId }) {
  override get message() {
    return `the charge of payment ${this.paymentId} has no outcome here yet: report it again later`
  }
}

const Key = { key: Schema.String }
/** What happens to a captured charge: `key` is the refund's or dispute's own, `charge` the charge's. An old sender leaves out what it can. */
const AboutCharge = { ...Key, charge: Schema.optionalKey(Schema.String), ...ReportedAmount.fields }
const Known = Schema.Union([
  Schema.Struct({ type: Schema.Literal("charge.captured"), ...Key, ...ReportedAmount.fields }),
  Schema.Struct({ type: Schema.Literal("charge.declined"), reason: Schema.optionalKey(Schema.String), ...Key }),
  Schema.Struct({ type: Schema.Literal("refund.made"), ...AboutCharge }),
  Schema.Struct({
    type: Schema.Literals(["dispute.opened", "dispute.lost", "dispute.won"]),
    reason: Schema.optionalKey(Schema.String),
    ...AboutCharge
  })
])
type Known = typeof Known.Type
const decodeReport = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Struct({ type: Schema.String })))
const decodeKnown = Schema.decodeUnknownOption(Schema.fromJsonString(Known))
const decodeId = Schema.decodeUnknownOption(PaymentId)

/** The id of the payment that the report is about, as the report has it. */
const paymentOf = (report: Known): string | undefined =>
  report.type === "charge.captured" || report.type === "charge.declined"
    ? report.key
    : (report.charge ?? paymentOfRefundKey(report.key))

export class GatewayWebhook extends Context.Service<
  GatewayWebhook,
  {
    /**
     * Refuses a signature of another form or age, before anybody reads the body; `""` stands for none. Returns the check of the body's exact
     * bytes, which comes before anybody looks into them.
     */
    readonly verifier: (
      signature: string
    ) => Effect.Effect<(body: Uint8Array) => Effect.Effect<void, WebhookRefused>, WebhookRefused>
    /** Records what a report, which is verified, reports. */
    readonly record: (text: string) => Effect.Effect<void, WebhookRefused | ReportTooEarly>
  }
>()("paid-once/application/GatewayWebhook") {
  static readonly layer: Layer.Layer<GatewayWebhook, never, Payments | PaymentOutcomes | Gateway> = Layer.effect(
    GatewayWebhook,
    Effect.gen(function* () {
      const { secrets } = yield* WebhookSettings
      const payments = yield* Payments
      const outcomes = yield* PaymentOutcomes
      const gateway = yield* Gateway

      const unsigned = (why: string) => new WebhookRefused({ reason: `${signatureHeader} ${why}`, isSignature: true })

      const verifier = Effect.fnUntraced(function* (signature: string) {
        if (secrets.length === 0) {
          return yield* new WebhookRefused({ reason: "no secret is set (GATEWAY_WEBHOOK_SECRET)", isSignature: true })
        }
        const nowSeconds = Math.floor((yield* Clock.currentTimeMillis) / 1000)
        const signed = yield* Effect.fromResult(
          Result.mapError(SignedMessage.parse(signature, nowSeconds, toleranceSeconds), unsigned)
        )
        return (body: Uint8Array) =>
          SignedMessage.isSigned(secrets, signed, body) ? Effect.void : Effect.fail(unsigned("does not sign this body"))
      })

      /**
       * The payment once its capture is recorded. A report of what follows a capture can overtake the answer that tells of it, or contradict a
       * decline.
       */
      const afterCapture = Effect.fnUntraced(function* (
        id: PaymentId
      ): Effect.fn.Return<Payment, PaymentNotFound | ReportTooEarly> {
        const payment = yield* payments.get(id)
        if (payment.capturedMinor > 0) return payment
        const found = yield* Turn.aside(Effect.orElseSucceed(gateway.lookUpCharge(id), Option.none))
        if (Option.isNone(found)) {
          yield* Effect.logWarning(
            `the gateway reports what followed the charge of payment ${id}, which has no outcome here yet`
          )
          return yield* new ReportTooEarly({ paymentId: id })
        }
        yield* outcomes.charged(id, found.value)
        return yield* payments.get(id)
      })

      type Applied = Effect.fn.Return<void, PaymentNotFound | ReportTooEarly>

      const applyCharge = Effect.fnUntraced(function* (
        report: Extract<Known, { readonly type: `charge.${string}` }>,
        id: PaymentId
      ): Applied {
        // Most reports are of an outcome that is recorded already: those take no lock.
        const payment = yield* payments.get(id)
        const isRecorded =
          report.type === "charge.captured"
            ? payment.capturedMinor > 0 && !ReportedAmount.contradicts(report, payment)
            : payment.status === "declined"
        if (isRecorded) return
        const outcome =
          report.type === "charge.captured"
            ? ({ ...report, _tag: "Captured" } as const)
            : ({ _tag: "Declined", reason: presentableText(report.reason ?? "no reason was given") } as const)
        yield* outcomes.charged(id, outcome)
      })

      const applyRefund = Effect.fnUntraced(function* (
        report: Extract<Known, { readonly type: "refund.made" }>,
        id: PaymentId
      ): Applied {
        const payment = yield* afterCapture(id)
        if (payment.status === "refunded" && !ReportedAmount.contradicts(report, payment)) return
        if (payment.capturedMinor > 0)
          yield* outcomes.refunded(id, { amount: report, isOurs: report.key === refundKeyOf(id) })
        else yield* outcomes.contradicted(id, `the gateway reports a refund of ${ReportedAmount.describe(report)}`)
      })

      const applyDispute = Effect.fnUntraced(function* (
        { key, reason, type, ...amount }: Extract<Known, { readonly type: `dispute.${string}` }>,
        id: PaymentId
      ): Applied {
        const { status } = yield* afterCapture(id)
        const why = reason === undefined ? "" : `: ${reason}`
        const what = `the gateway reports ${type}, of ${ReportedAmount.describe(amount)}, as ${key}${why}`
        // The money stays, or came back. Whoever the payment waits for still has to say so.
        if (type === "dispute.won") yield* Effect.logInfo(`payment ${id}, which is ${status}: ${presentableText(what)}`)
        else yield* outcomes.contradicted(id, what)
      })

      const apply = (report: Known, id: PaymentId): Effect.Effect<void, PaymentNotFound | ReportTooEarly> => {
        switch (report.type) {
          case "charge.captured":
          case "charge.declined":
            return applyCharge(report, id)
          case "refund.made":
            return applyRefund(report, id)
          default:
            return applyDispute(report, id)
        }
      }

      return GatewayWebhook.of({
        verifier,
        record: Effect.fn("GatewayWebhook.record")(function* (text) {
          const some = decodeReport(text)
          if (Option.isNone(some)) {
            return yield* new WebhookRefused({ reason: "the body is no report of the gateway", isSignature: false })
          }
          const report = decodeKnown(text)
          // What can't be read is accepted, for the gateway would send it again after a refusal. About a charge it would have mattered.
          if (Option.isNone(report)) {
            const type = presentableText(some.value.type)
            if (!/^(?:charge|refund|dispute)\./.test(type)) {
              return yield* Effect.logInfo(`a report of the gateway, "${type}", is of no kind that is read here`)
            }
            yield* Metric.update(contradictionsTotal, 1)
            return yield* Effect.logError(
              `a report of the gateway, "${type}", can't be read: nothing follows from it here`
            )
          }
          const { key, type } = report.value
          const unknown = Effect.logWarning(
            `the gateway reports ${type}, as "${presentableText(key)}", of a payment unknown here`
          )
          const id = decodeId(paymentOf(report.value)?.toLowerCase())
          if (Option.isNone(id)) return yield* unknown
          yield* Effect.catchTag(apply(report.value, id.value), "PaymentNotFound", () => unknown)
        })
      })
    })
  )
}
