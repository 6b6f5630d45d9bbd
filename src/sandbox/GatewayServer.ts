/**
 * The sandbox payment gateway: an HTTP server with a state of its own, as another company would run it. The service knows only its URL.
 *
 * It honours idempotency keys: a repeated request with a known key gets the first answer, and charges nothing. It also fails as real gateways do:
 * it is slow, away or silent, by the payment method ({@link treatmentOf}) or on command ({@link Behaviour}), and its webhooks come in any order.
 */
import { Cause, Context, Effect, Layer, Option, Schema } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { SqlClient } from "effect/sql"
import { shortText } from "../domain/Text.ts"
import * as Provenance from "../http/access/Provenance.ts"
import { Command, type Mode } from "../http/admin/GatewayBehaviour.ts"
import * as Body from "../http/Body.ts"
import { listen, type ListenFailed } from "../http/HttpServer.ts"
import { Problem, toResponse } from "../http/Problems.ts"
import { RandomUuid } from "../platform/RandomUuid.ts"
import { Fibers } from "../platform/Supervised.ts"
import * as Turn from "../platform/Turn.ts"
import type { MigrationsError } from "../postgres/Migrations.ts"
import { Behaviour } from "./Behaviour.ts"
import { Books, type Charge, type NewRefund, type Report } from "./Books.ts"
import * as Dashboard from "./Dashboard.ts"
import { treatmentOf } from "./Methods.ts"
import * as SandboxSchema from "./SandboxSchema.ts"
import { WebhookSender, type WebhookTarget } from "./WebhookSender.ts"

/** The gateway's port. It listens on this machine only. Port 0 picks a free one. */
export const GatewayServerSettings = Context.Reference<{ readonly port: number }>(
  "paid-once/sandbox/GatewayServerSettings",
  {
    defaultValue: () => ({ port: 3001 })
  }
)

const host = "127.0.0.1"
/** Its requests take a few statements: one that is not done in a second hangs. */
const graceMillis = 1_000
/** Above any client's timeout. */
const silenceMillis = 120_000

const Amount = {
  amountMinor: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
  currency: Schema.String.check(Schema.isPattern(/^[A-Z]{3}$/))
}
/** A charge that a client requests. */
const ChargeBody = Schema.Struct({ ...Amount, paymentMethod: shortText(100) })
/** A refund that a client requests, of the charge with that key. */
const RefundBody = Schema.Struct({ ...Amount, charge: shortText(255) })

const FindBody = Schema.Struct({ keys: Schema.Array(shortText(255)).check(Schema.isMaxLength(1_000)) })

/** Enough for a person to read. More on request (`?limit=`). */
const ledgerSize = 100
/** Some hundred kilobytes of charges, and as much of refunds. */
const maxLedgerSize = 1_000

/** As long as the keys of the order API. */
const maxKeyLength = 255

const answer = ({ amountMinor, currency, ...charge }: Charge) =>
  charge.status === "captured"
    ? HttpServerResponse.jsonUnsafe({ status: "captured", amountMinor, currency })
    : HttpServerResponse.jsonUnsafe({ status: "declined", reason: charge.reason }, { status: 402 })

/** Answers every failure with its problem. A defect is logged. */
const answering = <E, R>(handler: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.catchCause(handler, (cause) => {
    // The client has hung up: nobody waits for an answer.
    if (Cause.hasInterruptsOnly(cause)) return Effect.interrupt
    const failure: unknown = Cause.squash(cause)
    if (failure instanceof Problem) return Effect.succeed(toResponse(failure))
    return HttpServerError.isHttpServerError(failure) && failure.reason._tag === "RouteNotFound"
      ? Effect.succeed(toResponse(new Problem({ status: 404, detail: "there is nothing at this path" })))
      : Effect.as(
          Effect.logError("sandbox gateway: a request failed", cause),
          toResponse(new Problem({ status: 500, detail: "something went wrong" }))
        )
  })

/** The request's Idempotency-Key; a {@link Problem} without one. */
const idempotencyKey = (what: string) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers }) => {
    const key = headers["idempotency-key"]
    const isMissing = key === undefined || key === ""
    return isMissing || key.length > maxKeyLength
      ? Effect.fail(
          new Problem({
            status: 400,
            detail: `${what} needs an Idempotency-Key of 1 to ${maxKeyLength} characters`,
            errors: [
              {
                in: "header",
                pointer: "/idempotency-key",
                message: isMissing ? "is required" : `must have at most ${maxKeyLength} characters`
              }
            ]
          })
        )
      : Effect.succeed(key)
  })

const keyReused = (key: string) =>
  new Problem({ status: 422, detail: `the key ${key} was already used for something else` })

/** The fault before a request is processed. */
const before = (mode: Mode) => {
  switch (mode) {
    case "down":
      return Effect.fail(new Problem({ status: 503, detail: "the gateway is down" }))
    case "error":
      return Effect.fail(new Problem({ status: 500, detail: "something went wrong" }))
    case "timeout":
      return Turn.aside(Effect.sleep(silenceMillis))
    default:
      return Effect.void
  }
}

/** The fault after a request was processed. */
const after = (mode: Mode, delayMillis: number) => {
  switch (mode) {
    case "slow":
      return Turn.aside(Effect.sleep(delayMillis))
    case "timeout-after":
      return Turn.aside(Effect.sleep(silenceMillis))
    case "error-after":
      return Effect.fail(new Problem({ status: 500, detail: "something went wrong" }))
    default:
      return Effect.void
  }
}

/** A running sandbox gateway. */
export class GatewayServer extends Context.Service<
  GatewayServer,
  {
    readonly url: string
    /** Sets the receiver of webhook reports, from now on. */
    readonly reportTo: (target: WebhookTarget) => Effect.Effect<void>
    /** How it behaves, and the way to change that without a request. */
    readonly behaviour: Pick<Behaviour["Service"], "get" | "set">
  }
>()("paid-once/sandbox/GatewayServer") {
  /** Creates its schema if it is missing, and serves until the scope ends. */
  static readonly layer: Layer.Layer<GatewayServer, ListenFailed | MigrationsError, SqlClient.SqlClient> = Layer.effect(
    GatewayServer,
    Effect.gen(function* () {
      const { port } = yield* GatewayServerSettings
      const books = yield* Books
      const behaviour = yield* Behaviour
      const webhooks = yield* WebhookSender
      const drawUuid = yield* RandomUuid

      /** The report of a charge or refund, if webhooks are sent. */
      const reportOf = Effect.fnUntraced(function* (event: object) {
        const { webhooks: mode } = yield* behaviour.get
        if (mode === "never" || !(yield* webhooks.isWanted)) return undefined
        const id = drawUuid()
        const report: Report = { id, body: JSON.stringify({ id, ...event }), deliveries: mode === "twice" ? 2 : 1 }
        return report
      })
      const sendReport = Effect.fnUntraced(function* (report: Report | undefined) {
        if (report === undefined) return
        if ((yield* behaviour.get).webhooks === "first") yield* Turn.aside(webhooks.deliver(report.id, report.body))
        yield* webhooks.wake
      })

      const charge = Effect.gen(function* () {
        const key = yield* idempotencyKey("a charge")
        const body = yield* Body.decode(ChargeBody)
        const { delayMillis, mode } = yield* behaviour.take
        yield* before(mode)
        const { declineReason, every, first } = treatmentOf(body.paymentMethod)
        const own = first !== "normal" && (yield* books.tries(key)) === 1 ? first : every
        yield* before(own)
        const report = yield* reportOf(
          declineReason === null
            ? { type: "charge.captured", key, amountMinor: body.amountMinor, currency: body.currency }
            : { type: "charge.declined", key, reason: declineReason }
        )
        const { entry, isNew } = yield* books.charge({ key, ...body }, declineReason, report)
        if (isNew) yield* sendReport(report)
        if (
          entry.amountMinor !== body.amountMinor ||
          entry.currency !== body.currency ||
          entry.paymentMethod !== body.paymentMethod
        )
          return yield* keyReused(key)
        yield* after(mode, delayMillis)
        yield* after(own, delayMillis)
        return answer(entry)
      })

      const refund = Effect.gen(function* () {
        const key = yield* idempotencyKey("a refund")
        const { charge: chargeKey, ...amount } = yield* Body.decode(RefundBody)
        const { delayMillis, mode } = yield* behaviour.take
        yield* before(mode)
        const report = yield* reportOf({ type: "refund.made", key, charge: chargeKey, ...amount })
        const made = yield* books.refund({ key, chargeKey, ...amount }, report)
        if ("refused" in made) return yield* new Problem({ status: 422, detail: made.refused })
        if (made.isNew) yield* sendReport(report)
        const { entry } = made
        if (
          entry.chargeKey !== chargeKey ||
          entry.amountMinor !== amount.amountMinor ||
          entry.currency !== amount.currency
        )
          return yield* keyReused(key)
        yield* after(mode, delayMillis)
        return HttpServerResponse.jsonUnsafe({ status: "refunded", ...amount })
      })
      const dashboard = Dashboard.make({ books, drawKey: drawUuid, reportOf, sendReport })

      const lookUp = <E>(what: string, find: (key: string) => Effect.Effect<Option.Option<Charge | NewRefund>, E>) =>
        Effect.gen(function* () {
          const { delayMillis, mode } = yield* behaviour.take
          yield* before(mode)
          yield* after(mode, delayMillis)
          const { key = "" } = yield* HttpRouter.params
          // A key that Postgres can't store was never used.
          const found = key.includes("\u0000") ? Option.none() : yield* find(key)
          return Option.isNone(found)
            ? yield* new Problem({ status: 404, detail: `there is no ${what} ${key}` })
            : HttpServerResponse.jsonUnsafe(found.value)
        })

      const ledgerQuery = Effect.gen(function* () {
        const { url } = yield* HttpServerRequest.HttpServerRequest
        const query = new URL(url, "http://gateway").searchParams
        const wanted = query.get("limit") ?? String(ledgerSize)
        const limit = Number(wanted)
        if (!/^[1-9]\d{0,3}$/.test(wanted) || limit > maxLedgerSize)
          return yield* new Problem({
            status: 400,
            detail: `limit must be a whole number from 1 to ${maxLedgerSize}`
          })
        return { limit, cursor: (query.get("cursor") ?? "").replaceAll("\0", "") }
      })
      const ledger = Effect.flatMap(ledgerQuery, ({ limit }) =>
        Effect.map(books.ledger(limit), (found) => HttpServerResponse.jsonUnsafe(found))
      )

      const reachable = Effect.flatMap(behaviour.take, ({ delayMillis, mode }) =>
        Effect.andThen(before(mode), after(mode, delayMillis))
      )
      const ledgerEntries = Effect.gen(function* () {
        yield* reachable
        const { cursor, limit } = yield* ledgerQuery
        const items = yield* books.entries(cursor, limit)
        return HttpServerResponse.jsonUnsafe({ items, nextCursor: items.length < limit ? null : items.at(-1)!.key })
      })
      const ledgerFind = Effect.gen(function* () {
        yield* reachable
        const { keys } = yield* Body.decode(FindBody)
        return HttpServerResponse.jsonUnsafe({ items: yield* books.entriesOf(keys), nextCursor: null })
      })

      const router = yield* HttpRouter.make
      yield* router.add("POST", "/charges", answering(charge))
      yield* router.add("GET", "/charges/:key", answering(lookUp("charge", books.findCharge)))
      yield* router.add("POST", "/refunds", answering(refund))
      yield* router.add("GET", "/refunds/:key", answering(lookUp("refund", books.findRefund)))
      yield* router.add("POST", "/dashboard/refunds", answering(dashboard.refund))
      yield* router.add("POST", "/dashboard/disputes", answering(dashboard.dispute))
      yield* router.add("GET", "/ledger", answering(ledger))
      yield* router.add("GET", "/ledger/entries", answering(ledgerEntries))
      yield* router.add("POST", "/ledger/find", answering(ledgerFind))
      yield* router.add(
        "GET",
        "/behaviour",
        answering(Effect.map(behaviour.get, (state) => HttpServerResponse.jsonUnsafe(state)))
      )
      yield* router.add(
        "PUT",
        "/behaviour",
        answering(
          Effect.map(Effect.flatMap(Body.decode(Command), behaviour.set), (state) =>
            HttpServerResponse.jsonUnsafe(state)
          )
        )
      )

      const { address, around, drain, server } = yield* listen({ host, port }, "GATEWAY_PORT")
      const refusalOf = yield* Provenance.make
      const admit = Effect.flatMap(Provenance.message, (message) => {
        const refusal = refusalOf(message)
        return refusal === undefined ? Effect.void : Effect.fail(refusal)
      })
      yield* server.serve(around(answering(Effect.andThen(admit, router.asHttpEffect()))))
      yield* Effect.addFinalizer(() => drain(graceMillis))
      return GatewayServer.of({ url: address.url, reportTo: webhooks.target, behaviour })
    })
  ).pipe(
    Layer.provide(Layer.mergeAll(Books.layer, Behaviour.layer, WebhookSender.layer)),
    // Fibers of its own: the service's health does not report the gateway's.
    Layer.provide(Fibers.layer),
    Layer.provide(Layer.effectDiscard(SandboxSchema.migrate))
  )
}
