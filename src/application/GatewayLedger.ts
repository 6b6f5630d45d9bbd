/** The payment gateway's ledger: every charge and refund that it has made, key by key. It is read only, and never moves money. */
import { Context, Effect, Layer, Schema } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import * as BoundedBody from "../platform/BoundedBody.ts"
import { headersOf } from "../platform/HttpTarget.ts"
import { GatewaySettings, presentableText } from "./Gateway.ts"

const Amount = { amountMinor: Schema.Int, currency: Schema.String }

/** All that the gateway has done under an idempotency key. A key that it forgot can have several charges. */
export const LedgerEntry = Schema.Struct({
  /** The key of the charge: the payment's id, if the payment is ours. */
  key: Schema.String,
  charges: Schema.Array(Schema.Struct({ status: Schema.Literals(["captured", "declined"]), ...Amount })),
  refunds: Schema.Array(Schema.Struct({ key: Schema.String, ...Amount }))
})
export type LedgerEntry = typeof LedgerEntry.Type

/** Entries in the order of their keys' code units. `nextCursor` is null on the last page. */
const LedgerPage = Schema.Struct({ items: Schema.Array(LedgerEntry), nextCursor: Schema.NullOr(Schema.String) })
export type LedgerPage = typeof LedgerPage.Type

/** The gateway gives no ledger now. */
export class LedgerUnavailable extends Schema.TaggedError<LedgerUnavailable>()("LedgerUnavailable", {
  reason: Schema.String
}) {
  override get message() {
    return `the gateway's ledger can't be read: ${this.reason}`
  }
}

/** Entries of a page: some hundred kilobytes. */
export const ledgerPageSize = 500

/** A page is about a hundred kilobytes. */
const maxAnswerBytes = 4_194_304

const decodePage = Schema.decodeEffect(Schema.fromJsonString(LedgerPage))

export class GatewayLedger extends Context.Service<
  GatewayLedger,
  {
    /** The entries behind `after`, {@link ledgerPageSize} at most. */
    readonly page: (after: string) => Effect.Effect<LedgerPage, LedgerUnavailable>
    /** The entries of these keys, {@link ledgerPageSize} at most. A key without a charge has none. */
    readonly find: (keys: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerUnavailable>
  }
>()("paid-once/application/GatewayLedger") {
  /** Asks the gateway at {@link GatewaySettings}. */
  static readonly layerHttp: Layer.Layer<GatewayLedger, never, GatewaySettings | HttpClient.HttpClient> = Layer.effect(
    GatewayLedger,
    Effect.gen(function* () {
      const { authorization, timeoutMillis, url } = yield* GatewaySettings
      const client = yield* HttpClient.HttpClient
      const headers = { ...headersOf({ authorization }), "accept-encoding": "identity" }

      const ask = (request: HttpClientRequest.HttpClientRequest) =>
        Effect.gen(function* () {
          const response = yield* client.execute(HttpClientRequest.setHeaders(request, headers))
          const text = yield* BoundedBody.textOf(response, maxAnswerBytes)
          if (response.status !== 200) return yield* new LedgerUnavailable({ reason: `it answered ${response.status}` })
          return yield* decodePage(text)
        }).pipe(
          Effect.timeout(timeoutMillis),
          Effect.mapError((error) =>
            error instanceof LedgerUnavailable
              ? error
              : new LedgerUnavailable({ reason: presentableText(error.message) })
          )
        )

      return GatewayLedger.of({
        page: Effect.fn("GatewayLedger.page")((after) =>
          ask(
            HttpClientRequest.get(`${url}/ledger/entries`).pipe(
              HttpClientRequest.setUrlParams({
                limit: String(ledgerPageSize),
                ...(after === "" ? {} : { cursor: after })
              })
            )
          )
        ),
        // A body, for five hundred keys are too long for an address.
        find: Effect.fn("GatewayLedger.find")((keys) =>
          Effect.map(
            ask(HttpClientRequest.post(`${url}/ledger/find`).pipe(HttpClientRequest.bodyJsonUnsafe({ keys }))),
            ({ items }) => items
          )
        )
      })
    })
  )
}
