/**
 * The payment gateway, as the use cases need it. Money moves there and nowhere else.
 */
import { Clock, Context, Effect, Layer, Option, type Redacted, Schema } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import type { PaymentId } from "../domain/Ids.ts"
import type { Money } from "../domain/Money.ts"
import { type PaymentMethod, refundKeyOf } from "../domain/Payment.ts"
import * as ReportedAmount from "../domain/ReportedAmount.ts"
import * as BoundedBody from "../platform/BoundedBody.ts"
import { headersOf } from "../platform/HttpTarget.ts"
import { innermost } from "../platform/Innermost.ts"
import { Outages } from "../platform/Outages.ts"
import * as Traced from "../platform/Traced.ts"
import * as Tracing from "../platform/Tracing.ts"
import { presentable } from "../platform/StorableText.ts"

/** The gateway's final answer about a charge. The amount of a capture is what the gateway says, and is yet to be compared. */
export const ChargeOutcome = Schema.Union([
  Schema.TaggedStruct("Captured", ReportedAmount.fields),
  Schema.TaggedStruct("Declined", { reason: Schema.String })
])
export type ChargeOutcome = typeof ChargeOutcome.Type

/** The gateway's final answer about a refund. The amount is what the gateway says, and is yet to be compared. */
export const RefundOutcome = Schema.Union([
  Schema.TaggedStruct("Refunded", ReportedAmount.fields),
  Schema.TaggedStruct("Refused", { reason: Schema.String })
])
export type RefundOutcome = typeof RefundOutcome.Type

/** Whether the charge or refund was made is unknown: the gateway gave no answer, a late one, or an error. It never means "failed". */
export class OutcomeUnknown extends Schema.TaggedError<OutcomeUnknown>()("OutcomeUnknown", { reason: Schema.String }) {
  override get message() {
    return `the gateway's outcome is unknown: ${this.reason}`
  }
}

/** A charge to be made. The payment's id is the idempotency key: a repeated request for the same payment never charges again. */
export interface Charge {
  readonly paymentId: PaymentId
  readonly amount: Money
  readonly paymentMethod: PaymentMethod
}

/** A refund of the payment's whole amount. Its key is derived from the payment's id, so it is made once, too. */
export interface Refund {
  readonly paymentId: PaymentId
  readonly amount: Money
}

export class GatewaySettings extends Context.Service<
  GatewaySettings,
  {
    readonly url: string
    /** The header `authorization` of each request, where the gateway wants one. */
    readonly authorization?: Redacted.Redacted | undefined
    /** How long an answer may take, from the request to its last byte. */
    readonly timeoutMillis: number
    /** How long the gateway remembers a key. The service repeats a request in the first half of that time only. */
    readonly keyRetentionMillis: number
  }
>()("paid-once/application/GatewaySettings") {}

/**
 * Starts a stopwatch: the returned effect reads the milliseconds since. A caller adds them to an age that it read from the database.
 *
 * The process has two clocks, and the larger reading counts: the monotonic clock stops while the machine sleeps, and the wall clock may
 * be set back.
 */
export const stopwatch: Effect.Effect<Effect.Effect<number>> = Clock.clockWith((clock) =>
  Effect.sync(() => {
    const wallMillis = clock.currentTimeMillisUnsafe()
    const monotonicNanos = clock.monotonicTimeNanosUnsafe()
    return Effect.sync(() =>
      Math.max(
        clock.currentTimeMillisUnsafe() - wallMillis,
        Number((clock.monotonicTimeNanosUnsafe() - monotonicNanos) / 1_000_000n)
      )
    )
  })
)

/**
 * Whether a request may be repeated with a key that was first used `ageMillis` ago, by the database's clock.
 *
 * Only in the first half of the key's retention: the gateway would charge again for a key that it has forgotten. The second half allows
 * for clocks that differ and for requests that are slow to arrive.
 */
export const mayRepeat = (ageMillis: number, keyRetentionMillis: number): boolean => ageMillis < keyRetentionMillis / 2

/** What an unreachable gateway stops, in the log. A late answer is no outage: the payment tells of it. */
const part = "charges and refunds"

/** A sentence or two. */
const maxTextLength = 500

/** A text of the gateway, made fit for an event, a row, a log line and an answer. */
export const presentableText = (text: string): string => presentable(text, maxTextLength)

/** An answer is JSON of a few hundred bytes. A gateway that tells much about a charge stays below some kilobytes. */
const maxAnswerBytes = 65_536

const decodeCharge = Schema.decodeEffect(
  Schema.fromJsonString(
    Schema.Union([
      Schema.Struct({ status: Schema.Literal("captured"), ...ReportedAmount.fields }),
      Schema.Struct({ status: Schema.Literal("declined"), reason: Schema.String })
    ])
  )
)
const decodeRefund = Schema.decodeEffect(
  Schema.fromJsonString(Schema.Struct({ status: Schema.Literal("refunded"), ...ReportedAmount.fields }))
)
/** The gateway answers a look-up with the refund as it was requested. */
const decodeFoundRefund = Schema.decodeEffect(
  Schema.fromJsonString(Schema.Struct({ key: Schema.String, ...ReportedAmount.fields }))
)
const decodeRefusal = Schema.decodeEffect(Schema.fromJsonString(Schema.Struct({ detail: Schema.String })))

/** An answer's status, and its whole body. */
interface Answer {
  readonly status: number
  readonly text: string
}

/** Why an answer is no outcome. */
interface Unreadable {
  readonly message: string
}

const amountOf = ({ amountMinor, currency }: ReportedAmount.ReportedAmount): ReportedAmount.ReportedAmount => ({
  ...(amountMinor === undefined ? {} : { amountMinor }),
  ...(currency === undefined ? {} : { currency })
})

const readCharge = ({ text }: Answer) =>
  Effect.map(decodeCharge(text), (body): ChargeOutcome =>
    body.status === "captured"
      ? { _tag: "Captured", ...amountOf(body) }
      : { _tag: "Declined", reason: presentableText(body.reason) }
  )

/** An answer whose status and body contradict each other is no final answer. */
const readChargeAnswer = (answer: Answer): Effect.Effect<ChargeOutcome, Unreadable> =>
  Effect.filterOrFail(
    readCharge(answer),
    (outcome) => (answer.status === 200) === (outcome._tag === "Captured"),
    (outcome): Unreadable => ({ message: `it answered ${answer.status} with "${outcome._tag}"` })
  )

const readRefundAnswer = ({ status, text }: Answer): Effect.Effect<RefundOutcome, Unreadable> =>
  status === 200
    ? Effect.map(decodeRefund(text), (body) => ({ _tag: "Refunded" as const, ...amountOf(body) }))
    : Effect.map(decodeRefusal(text), ({ detail }) => ({ _tag: "Refused" as const, reason: presentableText(detail) }))

/** A refund with another key is not the one that was looked for. */
const readFoundRefund =
  (key: string) =>
  ({ text }: Answer): Effect.Effect<RefundOutcome, Unreadable> =>
    Effect.flatMap(decodeFoundRefund(text), (body): Effect.Effect<RefundOutcome, Unreadable> =>
      body.key === key
        ? Effect.succeed({ _tag: "Refunded" as const, ...amountOf(body) })
        : Effect.fail({ message: "it answered with another refund" })
    )

/** See {@link Gateway}. */
export interface GatewayService {
  /** Charges once for the payment, however often it is called while the gateway remembers the key. */
  readonly charge: (charge: Charge) => Effect.Effect<ChargeOutcome, OutcomeUnknown>
  /** The outcome of the payment's charge. None: the gateway has none yet; a request that is under way may still make one. */
  readonly lookUpCharge: (paymentId: PaymentId) => Effect.Effect<Option.Option<ChargeOutcome>, OutcomeUnknown>
  /** Refunds the payment once, however often it is called while the gateway remembers the key. */
  readonly refund: (refund: Refund) => Effect.Effect<RefundOutcome, OutcomeUnknown>
  readonly lookUpRefund: (paymentId: PaymentId) => Effect.Effect<Option.Option<RefundOutcome>, OutcomeUnknown>
}

/** Every implementation passes `test/contracts/Gateway.ts`. */
export class Gateway extends Context.Service<Gateway, GatewayService>()("paid-once/application/Gateway") {
  /**
   * Speaks HTTP to the gateway at {@link GatewaySettings}. It does not retry, and follows no redirect: the caller decides. An answer that is
   * too long, too slow, compressed, or can't be read is an unknown outcome.
   */
  static readonly layerHttp: Layer.Layer<Gateway, never, GatewaySettings | HttpClient.HttpClient> = Layer.effect(
    Gateway,
    Effect.gen(function* () {
      const { authorization, timeoutMillis, url } = yield* GatewaySettings
      const client = Traced.naming(yield* HttpClient.HttpClient, yield* Tracing.exporter)
      const outages = yield* Outages
      // A compressed answer would not be unpacked: a few bytes of it can be gigabytes.
      const headers = { ...headersOf({ authorization }), "accept-encoding": "identity" }

      /** Sends, and returns an answer whose status is in `final`. */
      const exchange = Effect.fnUntraced(function* (
        request: HttpClientRequest.HttpClientRequest,
        final: ReadonlyArray<number>
      ) {
        const response = yield* Effect.tapError(
          client.execute(HttpClientRequest.setHeaders(request, headers)),
          (error) => outages.failed(part, { subject: "the payment gateway", reason: presentableText(innermost(error)) })
        )
        yield* outages.recovered(part)
        const { status } = response
        const text = yield* Effect.result(BoundedBody.textOf(response, maxAnswerBytes))
        if (!final.includes(status)) return yield* new OutcomeUnknown({ reason: `it answered ${status}` })
        return { status, text: yield* Effect.fromResult(text) } satisfies Answer
      })

      /** Sends, and reads an answer whose status is in `final`. Any other answer, or none, is {@link OutcomeUnknown}. */
      const ask = <A>(
        request: HttpClientRequest.HttpClientRequest,
        final: ReadonlyArray<number>,
        read: (answer: Answer) => Effect.Effect<A, Unreadable>
      ): Effect.Effect<A, OutcomeUnknown> =>
        Effect.flatMap(exchange(request, final), read).pipe(
          // Around the body, too: an answer can begin and never end.
          Effect.timeout(timeoutMillis),
          Effect.mapError((error) =>
            error instanceof OutcomeUnknown ? error : new OutcomeUnknown({ reason: presentableText(error.message) })
          )
        )

      const charge = Effect.fn("Gateway.charge")(({ amount, paymentId, paymentMethod }: Charge) =>
        ask(
          HttpClientRequest.post(`${url}/charges`).pipe(
            HttpClientRequest.setHeader("idempotency-key", paymentId),
            HttpClientRequest.bodyJsonUnsafe({ ...amount, paymentMethod })
          ),
          [200, 402],
          readChargeAnswer
        )
      )

      const refund = Effect.fn("Gateway.refund")(({ amount, paymentId }: Refund) =>
        ask(
          HttpClientRequest.post(`${url}/refunds`).pipe(
            HttpClientRequest.setHeader("idempotency-key", refundKeyOf(paymentId)),
            HttpClientRequest.bodyJsonUnsafe({ ...amount, charge: paymentId })
          ),
          [200, 422],
          readRefundAnswer
        )
      )

      const lookUp = <A>(path: string, read: (answer: Answer) => Effect.Effect<A, Unreadable>) =>
        ask(HttpClientRequest.get(`${url}${path}`), [200, 404], (answer) =>
          answer.status === 200 ? Effect.map(read(answer), Option.some) : Effect.succeed(Option.none<A>())
        )

      return Gateway.of({
        charge,
        refund,
        lookUpCharge: Effect.fn("Gateway.lookUpCharge")((id) =>
          lookUp<ChargeOutcome>(`/charges/${encodeURIComponent(id)}`, readCharge)
        ),
        lookUpRefund: Effect.fn("Gateway.lookUpRefund")((id) => {
          const key = refundKeyOf(id)
          return lookUp<RefundOutcome>(`/refunds/${encodeURIComponent(key)}`, readFoundRefund(key))
        })
      })
    })
  )
}
