/**
 * The payment gateway, as the use cases need it. Money moves there and nowhere else.
 */
import { Clock, Context, Effect, Layer, Option, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import type { PaymentId } from "../domain/Ids.ts"
import type { Money } from "../domain/Money.ts"
import { type PaymentMethod, refundKeyOf } from "../domain/Payment.ts"

/** The gateway's final answer about a charge. */
export const ChargeOutcome = Schema.Union([
  Schema.TaggedStruct("Captured", {}),
  Schema.TaggedStruct("Declined", { reason: Schema.String })
])
export type ChargeOutcome = typeof ChargeOutcome.Type

/** The gateway's final answer about a refund. */
export const RefundOutcome = Schema.Union([
  Schema.TaggedStruct("Refunded", {}),
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
    /** How long an answer may take. */
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

/** A reason from another company's server, made fit to be stored and sent: bounded, and without characters that Postgres can't hold. */
const presentable = (reason: string) => reason.replaceAll("\u0000", "").toWellFormed().slice(0, maxReasonLength)

/** A sentence or two. */
const maxReasonLength = 500

const ChargeResponse = Schema.Union([
  Schema.Struct({ status: Schema.Literal("captured") }),
  Schema.Struct({ status: Schema.Literal("declined"), reason: Schema.String })
])

const RefundResponse = Schema.Struct({ status: Schema.Literal("refunded") })
/** The gateway answers a look-up with the refund as it was requested. Its key is enough. */
const FoundRefund = Schema.Struct({ key: Schema.String })
const Refusal = Schema.Struct({ detail: Schema.String })

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
  /** Speaks HTTP to the gateway at {@link GatewaySettings}. It does not retry: the caller decides. */
  static readonly layerHttp: Layer.Layer<Gateway, never, GatewaySettings | HttpClient.HttpClient> = Layer.effect(
    Gateway,
    Effect.gen(function* () {
      const { timeoutMillis, url } = yield* GatewaySettings
      const client = yield* HttpClient.HttpClient

      /** Sends, and reads an answer whose status is in `final`. Any other answer, or none, is {@link OutcomeUnknown}. */
      const ask = <A>(
        request: HttpClientRequest.HttpClientRequest,
        final: ReadonlyArray<number>,
        read: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, { readonly message: string }>
      ): Effect.Effect<A, OutcomeUnknown> =>
        client.execute(request).pipe(
          Effect.flatMap((response) =>
            final.includes(response.status)
              ? read(response)
              : Effect.fail(new OutcomeUnknown({ reason: `it answered ${response.status}` }))
          ),
          Effect.timeout(timeoutMillis),
          Effect.mapError((error) =>
            error instanceof OutcomeUnknown ? error : new OutcomeUnknown({ reason: error.message })
          )
        )

      const readCharge = (response: HttpClientResponse.HttpClientResponse) =>
        Effect.map(HttpClientResponse.schemaBodyJson(ChargeResponse)(response), (body): ChargeOutcome =>
          body.status === "captured" ? { _tag: "Captured" } : { _tag: "Declined", reason: presentable(body.reason) }
        )

      const charge = Effect.fn("Gateway.charge")(({ amount, paymentId, paymentMethod }: Charge) =>
        ask(
          HttpClientRequest.post(`${url}/charges`).pipe(
            HttpClientRequest.setHeader("idempotency-key", paymentId),
            HttpClientRequest.bodyJsonUnsafe({ ...amount, paymentMethod })
          ),
          [200, 402],
          (response) =>
            // An answer whose status and body contradict each other is no final answer.
            Effect.filterOrFail(
              readCharge(response),
              (outcome) => (response.status === 200) === (outcome._tag === "Captured"),
              (outcome) => new OutcomeUnknown({ reason: `it answered ${response.status} with "${outcome._tag}"` })
            )
        )
      )

      const refund = Effect.fn("Gateway.refund")(({ amount, paymentId }: Refund) =>
        ask(
          HttpClientRequest.post(`${url}/refunds`).pipe(
            HttpClientRequest.setHeader("idempotency-key", refundKeyOf(paymentId)),
            HttpClientRequest.bodyJsonUnsafe({ ...amount, charge: paymentId })
          ),
          [200, 422],
          (response): Effect.Effect<RefundOutcome, { readonly message: string }> =>
            response.status === 200
              ? Effect.as(HttpClientResponse.schemaBodyJson(RefundResponse)(response), { _tag: "Refunded" })
              : Effect.map(HttpClientResponse.schemaBodyJson(Refusal)(response), ({ detail }) => ({
                  _tag: "Refused",
                  reason: presentable(detail)
                }))
        )
      )

      const lookUp = <A>(
        path: string,
        read: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, { readonly message: string }>
      ) =>
        ask(HttpClientRequest.get(`${url}${path}`), [200, 404], (response) =>
          response.status === 200
            ? Effect.map(read(response), Option.some)
            : // The body is read to its end: otherwise the connection can't be reused.
              Effect.as(response.text, Option.none<A>())
        )

      return Gateway.of({
        charge,
        refund,
        lookUpCharge: Effect.fn("Gateway.lookUpCharge")((id) =>
          lookUp<ChargeOutcome>(`/charges/${encodeURIComponent(id)}`, readCharge)
        ),
        lookUpRefund: Effect.fn("Gateway.lookUpRefund")((id) =>
          lookUp<RefundOutcome>(`/refunds/${encodeURIComponent(refundKeyOf(id))}`, (response) =>
            Effect.as(HttpClientResponse.schemaBodyJson(FoundRefund)(response), { _tag: "Refunded" as const })
          )
        )
      })
    })
  )
}
