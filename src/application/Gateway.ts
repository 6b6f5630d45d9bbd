/**
 * The payment gateway, as the use cases need it. Money moves there and nowhere else.
 */
import type { PaymentId } from "../domain/Ids.ts"
import { Clock, Context, Effect, Layer, Option, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import type { Money } from "../domain/Money.ts"
import { type PaymentMethod, refundKeyOf } from "../domain/Payment.ts"

/** The gateway's final word on a charge. */
export const ChargeOutcome = Schema.Union([
  Schema.TaggedStruct("Captured", {}),
  Schema.TaggedStruct("Declined", { reason: Schema.String })
])
export type ChargeOutcome = typeof ChargeOutcome.Type

/** The gateway's final word on a refund. */
export const RefundOutcome = Schema.Union([
  Schema.TaggedStruct("Refunded", {}),
  Schema.TaggedStruct("Refused", { reason: Schema.String })
])
export type RefundOutcome = typeof RefundOutcome.Type

/** Whether the charge or refund happened is not known: no answer, a late one, or one that says nothing. It is never read as "failed". */
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

/** What to give back: the whole amount of the payment. Its key follows from the payment's id, so this too happens once. */
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
    /** How long the gateway knows a key. We ask for money with an old key in the first half of it only. */
    readonly keyRetentionMillis: number
  }
>()("paid-once/application/GatewaySettings") {}

/**
 * Starts to count, and returns the milliseconds counted since: by whichever of this process's clocks has gone further, for one stands
 * still while its machine sleeps, and the other may be set back. An age that the database told is this much older by now.
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
 * Whether a key that was first used so long ago, by the database's clock, may be used again: in the first half of its retention.
 * The other half is for clocks that differ and for requests that are on their way for long: a key that the gateway has forgotten
 * would charge anew.
 */
export const mayRepeat = (ageMillis: number, keyRetentionMillis: number): boolean => ageMillis < keyRetentionMillis / 2

/** What somebody else's server gave as a reason, fit to be stored and sent: bounded, and without what Postgres can't hold. */
const presentable = (reason: string) => reason.replaceAll("\u0000", "").toWellFormed().slice(0, maxReasonLength)

/** A sentence or two. */
const maxReasonLength = 500

const ChargeResponse = Schema.Union([
  Schema.Struct({ status: Schema.Literal("captured") }),
  Schema.Struct({ status: Schema.Literal("declined"), reason: Schema.String })
])

const RefundResponse = Schema.Struct({ status: Schema.Literal("refunded") })
/** A refund that is looked up is there as it was asked for. */
const FoundRefund = Schema.Struct({ key: Schema.String })
const Refusal = Schema.Struct({ detail: Schema.String })

/** See {@link Gateway}. */
export interface GatewayService {
  /** Charges once for the payment, however often it is asked while the gateway knows the key. */
  readonly charge: (charge: Charge) => Effect.Effect<ChargeOutcome, OutcomeUnknown>
  /** What became of the payment's charge. None: the gateway knows of none now, which is not to say that there will be none. */
  readonly lookUpCharge: (paymentId: PaymentId) => Effect.Effect<Option.Option<ChargeOutcome>, OutcomeUnknown>
  /** Gives the payment's money back once, however often it is asked while the gateway knows the key. */
  readonly refund: (refund: Refund) => Effect.Effect<RefundOutcome, OutcomeUnknown>
  readonly lookUpRefund: (paymentId: PaymentId) => Effect.Effect<Option.Option<RefundOutcome>, OutcomeUnknown>
}

/** Every implementation passes `test/contracts/Gateway.ts`. */
export class Gateway extends Context.Service<Gateway, GatewayService>()("paid-once/application/Gateway") {
  /** Speaks HTTP to the gateway at {@link GatewaySettings}. It does not retry: whoever owns the payment decides. */
  static readonly layerHttp: Layer.Layer<Gateway, never, GatewaySettings | HttpClient.HttpClient> = Layer.effect(
    Gateway,
    Effect.gen(function* () {
      const { timeoutMillis, url } = yield* GatewaySettings
      const client = yield* HttpClient.HttpClient

      /** Sends, and reads the answer whose status is among `words`. All else, and silence, says nothing about the money. */
      const ask = <A>(
        request: HttpClientRequest.HttpClientRequest,
        words: ReadonlyArray<number>,
        read: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, { readonly message: string }>
      ): Effect.Effect<A, OutcomeUnknown> =>
        client.execute(request).pipe(
          Effect.flatMap((response) =>
            words.includes(response.status)
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
            // Status and body must tell the same: a contradiction is no word to act on.
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
            : // Read to its end, or its connection could not be used again.
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
