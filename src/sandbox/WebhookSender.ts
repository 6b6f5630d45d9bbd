/**
 * Sends the sandbox gateway's webhooks: each charge and refund is reported to the target URL, signed, until the receiver accepts it.
 *
 * Delivery is at least once and unordered: a report may come before the charge's answer, twice, or days later.
 */
import { Clock, Context, Duration, Effect, Latch, Layer, Redacted, Ref, Schema } from "effect"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { HttpClient, HttpClientRequest } from "effect/http"
import { SqlClient, type SqlError } from "effect/sql"
import * as Backoff from "../platform/Backoff.ts"
import * as BoundedBody from "../platform/BoundedBody.ts"
import { headersOf } from "../platform/HttpTarget.ts"
import * as Rows from "../platform/Rows.ts"
import * as SignedMessage from "../platform/SignedMessage.ts"
import * as Supervised from "../platform/Supervised.ts"

/** The address of reports, and the secret that signs them. */
export interface WebhookTarget {
  readonly url: string
  /** The header `authorization`, where the receiver wants one. */
  readonly authorization?: Redacted.Redacted | undefined
  readonly secret: Redacted.Redacted
}

/** The header that carries the signature. */
export const signatureHeader = "gateway-signature"

/** A receiver stores a report in one transaction. One that takes longer gets the report again. */
const timeoutMillis = 5_000
/** A receiver answers with a status, and a problem at most. Redirects are not followed: a report is for its receiver alone. */
const maxAnswerBytes = 65_536
/** Reports that are claimed at once, and delivered side by side. */
const batchSize = 10
/** The waits that a claim chooses from, by the attempts so far; the last one is the longest. */
const retryDelays = Backoff.delaysMillis(Backoff.webhook, 10)
/** A report that was not accepted in three days is given up. */
const giveUpMillis = 259_200_000
/** Finds reports that another process left, and retries that are due. */
const pollMillis = 2_000
/**
 * A burst of reports shares connections. They are closed soon behind it: a service that stops waits two seconds for a silent connection
 * (Draining.ts).
 */
const idleMillis = 100

const claimed = Rows.all(Schema.Struct({ id: Schema.String, body: Schema.String }))

export class WebhookSender extends Context.Service<
  WebhookSender,
  {
    /** Whether there is a target. Without one no reports are made. */
    readonly isWanted: Effect.Effect<boolean>
    readonly target: (target: WebhookTarget) => Effect.Effect<void>
    /** Wakes the sender: a report was stored. */
    readonly wake: Effect.Effect<void>
    /** Tries to deliver this report now, once. A failure is retried by the sender. */
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
          HttpClientRequest.setHeaders(headersOf({ authorization: to.authorization })),
          HttpClientRequest.setHeader(signatureHeader, SignedMessage.sign(to.secret, nowSeconds, body)),
          HttpClientRequest.bodyText(body, "application/json"),
          client.execute,
          Effect.flatMap((response) =>
            Effect.as(BoundedBody.textOf(response, maxAnswerBytes), response.status >= 200 && response.status < 300)
          ),
          Effect.timeout(timeoutMillis),
          Effect.orElseSucceed(() => false)
        )
        if (isTaken) {
          yield* sql`UPDATE sandbox_gateway.webhooks
                     SET deliveries_left = deliveries_left - 1, attempts = 0, next_attempt_at = clock_now()
                     WHERE id = ${id}::uuid AND deliveries_left > 0`
        }
      })

      /** Claims the due reports. The next attempt is stored before this one begins: after a crash another sender continues. */
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
  ).pipe(
    Layer.provide(
      // Fresh: all clients share one layer, and so the options of the one that is built first.
      Layer.fresh(NodeHttpClient.layerUndiciOptions({ keepAliveTimeout: idleMillis, keepAliveMaxTimeout: idleMillis }))
    )
  )
}
