/**
 * The sandbox payment gateway: an HTTP server of its own, with state of its own, as another company would run it. The service
 * knows it by its URL alone.
 *
 * It does what makes paying once possible: a key is charged once, and asking again with it gives the first answer.
 */
import { Cause, Context, Effect, Layer, Option, Schema } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { SqlClient, type SqlError } from "effect/sql"
import * as Path from "node:path"
import { shortText } from "../domain/Text.ts"
import * as Body from "../http/Body.ts"
import { listen, type ListenFailed } from "../http/HttpServer.ts"
import { Problem, toResponse } from "../http/Problems.ts"
import * as Migrations from "../platform/database/Migrations.ts"

/** Where the gateway listens: on this machine only, for it gives money away. Port 0 picks a free one. */
export const GatewayServerSettings = Context.Reference<{ readonly port: number }>(
  "paid-once/sandbox/GatewayServerSettings",
  {
    defaultValue: () => ({ port: 3001 })
  }
)

const host = "127.0.0.1"
/** Its requests are single statements; what is not done in a second hangs. */
const graceMillis = 1_000

/** What a client asks to be charged. */
const ChargeBody = Schema.Struct({
  amountMinor: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
  currency: Schema.String.check(Schema.isPattern(/^[A-Z]{3}$/)),
  paymentMethod: shortText(100)
})

interface ChargeRow {
  readonly key: string
  readonly amountMinor: number
  readonly currency: string
  readonly paymentMethod: string
  readonly status: "captured" | "declined"
  readonly reason: string | null
}

/** Why a payment method is declined; null captures. */
const declineReason = (paymentMethod: string): string | null => {
  switch (paymentMethod) {
    case "pm_ok":
      return null
    case "pm_declined":
      return "insufficient funds"
    default:
      return "unknown payment method"
  }
}

/** The ledger's newest charges; the totals are over all. Enough for a person to read, and for a demo's last orders. */
const ledgerSize = 100

/** Any number that no one else locks: processes that start together take turns in making the schema. */
const migrationLock = 7_315_946

const migrate = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql.withTransaction(
    Effect.gen(function* () {
      // IF NOT EXISTS alone still fails where two sessions create the same schema at once.
      yield* sql`SELECT pg_advisory_xact_lock(${migrationLock}::int8)`
      yield* sql`CREATE SCHEMA IF NOT EXISTS sandbox_gateway`
      yield* Migrations.apply([Migrations.setOf(Path.resolve(import.meta.dirname, "../.."), "sandbox")])
    })
  )
})

const answer = (charge: ChargeRow) =>
  charge.status === "captured"
    ? HttpServerResponse.jsonUnsafe({ status: "captured" })
    : HttpServerResponse.jsonUnsafe({ status: "declined", reason: charge.reason }, { status: 402 })

/** Every failure as its problem; a defect is logged. */
const answering = <E, R>(handler: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.catchCause(handler, (cause) => {
    const failure: unknown = Cause.squash(cause)
    if (failure instanceof Problem) return Effect.succeed(toResponse(failure))
    return HttpServerError.isHttpServerError(failure) && failure.reason._tag === "RouteNotFound"
      ? Effect.succeed(toResponse(new Problem({ status: 404, detail: "there is nothing at this path" })))
      : Effect.as(
          Effect.logError("sandbox gateway: a request failed", cause),
          toResponse(new Problem({ status: 500, detail: "something went wrong" }))
        )
  })

/** A running sandbox gateway. */
export class GatewayServer extends Context.Service<GatewayServer, { readonly url: string }>()(
  "paid-once/sandbox/GatewayServer"
) {
  /** Makes its schema if it is missing, and serves until the scope ends. */
  static readonly layer: Layer.Layer<
    GatewayServer,
    ListenFailed | Migrations.MigrationFailed | SqlError.SqlError,
    SqlClient.SqlClient
  > = Layer.effect(
    GatewayServer,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { port } = yield* GatewayServerSettings
      yield* migrate
      const columns = sql.literal(`
        idempotency_key AS key, amount_minor::float8 AS "amountMinor", currency, payment_method AS "paymentMethod", status,
        decline_reason AS reason`)
      const find = (key: string) =>
        Effect.map(
          sql<ChargeRow>`SELECT ${columns} FROM sandbox_gateway.charges WHERE idempotency_key = ${key}`,
          (rows) => Option.fromNullishOr(rows[0])
        )

      const charge = Effect.gen(function* () {
        const request = yield* HttpServerRequest.HttpServerRequest
        const key = request.headers["idempotency-key"]
        if (key === undefined || key === "") {
          return yield* new Problem({
            status: 400,
            detail: "a charge needs an Idempotency-Key",
            errors: [{ in: "header", pointer: "/idempotency-key", message: "is required" }]
          })
        }
        const body = yield* Body.decode(ChargeBody)
        const reason = declineReason(body.paymentMethod)
        // The unique key decides: of two requests at once the second waits for the first, and finds its charge.
        yield* sql`
          INSERT INTO sandbox_gateway.charges (idempotency_key, amount_minor, currency, payment_method, status, decline_reason, charged_at)
          VALUES (${key}, ${BigInt(body.amountMinor)}, ${body.currency}, ${body.paymentMethod},
                  ${reason === null ? "captured" : "declined"}, ${reason}::text, clock_timestamp())
          ON CONFLICT DO NOTHING`
        const stored = Option.getOrThrow(yield* find(key))
        return stored.amountMinor === body.amountMinor &&
          stored.currency === body.currency &&
          stored.paymentMethod === body.paymentMethod
          ? answer(stored)
          : yield* new Problem({ status: 422, detail: `the key ${key} was already used for another charge` })
      })

      const lookUp = Effect.gen(function* () {
        const { key = "" } = yield* HttpRouter.params
        // What Postgres can't store was never charged.
        const found = key.includes("\u0000") ? Option.none<ChargeRow>() : yield* find(key)
        return Option.isNone(found)
          ? yield* new Problem({ status: 404, detail: `there is no charge ${key}` })
          : HttpServerResponse.jsonUnsafe(found.value)
      })

      const ledger = Effect.gen(function* () {
        const totals = yield* sql`
          SELECT currency, count(*) FILTER (WHERE status = 'captured')::float8 AS captured,
                 count(*) FILTER (WHERE status = 'declined')::float8 AS declined,
                 coalesce(sum(amount_minor) FILTER (WHERE status = 'captured'), 0)::float8 AS "capturedMinor"
          FROM sandbox_gateway.charges GROUP BY currency ORDER BY currency`
        const charges = yield* sql`
          SELECT ${columns} FROM sandbox_gateway.charges ORDER BY charged_at DESC, idempotency_key LIMIT ${ledgerSize}`
        return HttpServerResponse.jsonUnsafe({ totals, charges })
      })

      const router = yield* HttpRouter.make
      yield* router.add("POST", "/charges", answering(charge))
      yield* router.add("GET", "/charges/:key", answering(lookUp))
      yield* router.add("GET", "/ledger", answering(ledger))

      const { address, server } = yield* listen({ host, port, graceMillis }, "GATEWAY_PORT")
      yield* server.serve(answering(router.asHttpEffect()))
      return GatewayServer.of({ url: address.url })
    })
  )
}
