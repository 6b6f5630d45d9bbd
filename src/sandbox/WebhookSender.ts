/**
 * The sandbox gateway's reports: each charge and refund is reported to the URL that it was told, signed, until somebody takes it.
 *
 * At least once, and in no order: a report may come before the answer that it speaks of, twice, or days later.
 */
import { Clock, Context, Duration, Effect, Latch, Layer, Redacted, Ref, Schema } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { SqlClient, type SqlError } from "effect/sql"
import * as Rows from "../platform/Rows.ts"
import * as SignedMessage from "../platform/SignedMessage.ts"
import * as Backoff from "../platform/Backoff.ts"
import * as Supervised from "../platform/Supervised.ts"

/** Where reports go, and the secret that signs them. */
export interface WebhookTarget {
  readonly url: string
  readonly secret: Redacted.Redacted
}

/** The header that carries the signature. */
export const signatureHeader = "gateway-signature"

/** A receiver that takes longer is asked again: it does no more than to write down what it was told. */
const timeoutMillis = 5_000
/** Reports of one claim, which are delivered side by side. */
const batchSize = 10
/** The waits that a claim chooses from, by the attempts so far; the last one is the longest. */
const retryDelays = Backoff.delaysMillis(Backoff.webhook, 10)
/** What nobody has taken in three days is given up, as elsewhere. */
const giveUpMillis = 259_200_000
/** The net under what another process left behind, or was told to deliver later. */
const pollMillis = 2_000

const claimed = Rows.all(Schema.Struct({ id: Schema.String, body: Schema.String }))

export class WebhookSender extends Context.Service<
  WebhookSender,
  {
    /** Whether anybody wants to hear: reports that nobody wants are not made. */
    readonly isWanted: Effect.Effect<boolean>
    readonly target: (target: WebhookTarget) => Effect.Effect<void>
    /** There is something to deliver. */
    readonly wake: Effect.Effect<void>
    /** Delivers this report now, once; whether it was taken does not matter to the caller. */
    readonly deliver: (id: string, body: string) => Effect.Effect<void, SqlError.SqlError>
  }
>()("paid-once/sandbox/WebhookSender") {
  static readonly layer: Layer.Layer<WebhookSender, never, SqlClient.SqlClient | Supervised.Fibers> = Layer.effect(
    WebhookSender,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const client = yield* HttpClient.HttpClient
      const target = yield* Ref.make<WebhookTarget | undefined>(undefined)
      const latch = yield* Latch.make(false)
      const retries = yield* retryDelays

      const deliver = Effect.fnUntraced(function* (id: string, body: string) {
        const to = yield* Ref.get(target)
        if (to === undefined) return
        const nowSeconds = Math.floor((yield* Clock.currentTimeMillis) / 1000)
        const isTaken = yield* HttpClientRequest.post(to.url).pipe(
          HttpClientRequest.setHeader(signatureHeader, SignedMessage.sign(to.secret, nowSeconds, body)),
          HttpClientRequest.bodyText(body, "application/json"),
          client.execute,
          // The body is read to its end, or its connection could not be used again.
          Effect.flatMap((response) => Effect.as(response.text, response.status >= 200 && response.status < 300)),
          Effect.timeout(timeoutMillis),
          Effect.orElseSucceed(() => false)
        )
        if (isTaken) {
          yield* sql`UPDATE sandbox_gateway.webhooks
                     SET deliveries_left = deliveries_left - 1, attempts = 0, next_attempt_at = clock_now()
                     WHERE id = ${id}::uuid AND deliveries_left > 0`
        }
      })

      /** Claims what is due: the next attempt is set before this one begins, so that a sender that dies is followed by another. */
      const claim = claimed(sql`
        UPDATE sandbox_gateway.webhooks AS w
        SET attempts = w.attempts + 1,
            next_attempt_at = clock_now() + ${timeoutMillis}::float8 * interval '1 millisecond'
                              + (${retries}::float8[])[least(w.attempts + 1, ${retries.length}::int4)] * interval '1 millisecond'
        WHERE w.id IN (
          SELECT id FROM sandbox_gateway.webhooks
          WHERE deliveries_left > 0 AND next_attempt_at <= clock_now()
            AND created_at > clock_now() - ${giveUpMillis}::float8 * interval '1 millisecond'
          ORDER BY next_attempt_at LIMIT ${batchSize} FOR UPDATE SKIP LOCKED)
        RETURNING w.id, w.body`)

      yield* Supervised.forkLoop(
        "sandbox webhooks",
        Effect.gen(function* () {
          yield* latch.close
          const due = (yield* Ref.get(target)) === undefined ? [] : yield* claim
          yield* Effect.forEach(due, ({ body, id }) => deliver(id, body), { concurrency: "unbounded", discard: true })
          if (due.length === 0) yield* Effect.raceFirst(latch.await, Effect.sleep(Duration.millis(pollMillis)))
        })
      )

      return WebhookSender.of({
        isWanted: Effect.map(Ref.get(target), (to) => to !== undefined),
        target: (to) => Effect.andThen(Ref.set(target, to), latch.open),
        wake: Effect.asVoid(latch.open),
        deliver
      })
    })
  ).pipe(Layer.provide(FetchHttpClient.layer))
}
