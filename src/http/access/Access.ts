/**
 * Each route's scope, the caller of a request, and the refusal of a caller who may not use it.
 *
 * It goes by the route that the router has found, and not by the path as it is spelt. A route that nobody has thought of here needs an
 * operator's key.
 */
import { Context, Effect } from "effect"
import { HttpRouter } from "effect/http"
import * as Provenance from "./Provenance.ts"
import { type ApiKey, callerOf } from "./ApiKeys.ts"
import { Caller, type Scope } from "./Caller.ts"
import { Problem, toResponse } from "../Problems.ts"
import { RateLimits } from "./RateLimits.ts"

/** The API keys; undefined where none are configured, and everybody may do everything. */
export const AccessSettings = Context.Reference<{ readonly keys: ReadonlyArray<ApiKey> | undefined }>(
  "paid-once/http/AccessSettings",
  { defaultValue: () => ({ keys: undefined }) }
)

/**
 * Open, and without a limit. An orchestrator that is refused would end a healthy process, and an attacker may share its address. The
 * gateway's reports are signed, and one that is refused delays a payment's outcome.
 */
const unlimited = new Set(["/health/live", "/health/ready", "/webhooks/gateway"])
/** Open: they tell what this service's public source tells. */
const documentation = new Set(["/openapi.json", "/docs"])

/** The scope that a route needs; undefined where it is open. Routes are written with their parameters: `/orders/:id`. */
export const scopeOf = (route: string): Scope | undefined =>
  unlimited.has(route) || documentation.has(route)
    ? undefined
    : /^\/(?:orders|payments)(?:\/|$)/.test(route)
      ? "customer"
      : "operator"

const unauthorized = new Problem({
  status: 401,
  detail: "this needs an API key: Authorization: Bearer KEY",
  headers: { "www-authenticate": "Bearer" }
})

const forbidden = (name: string) =>
  new Problem({ status: 403, detail: `the API key ${name} has the scope customer, and this needs operator` })

/** Recognises the caller of each request, whose name is then on every log line of the request. */
export const identifying = <A, E, R>(handler: Effect.Effect<A, E, R>) =>
  Effect.map(AccessSettings, ({ keys }) =>
    Effect.flatMap(Provenance.message, ({ headers }) => {
      const caller = callerOf(keys, headers.authorization)
      return handler.pipe(Effect.provideService(Caller, caller), Effect.annotateLogs("caller", caller.name))
    })
  )

/** Around each route: answers 429 to a {@link Caller} who asks too often, 401 and 403 to one who may not ask this. */
export const middleware = HttpRouter.middleware(
  Effect.gen(function* () {
    const limits = yield* RateLimits
    return (handler) =>
      Effect.gen(function* () {
        const { path } = (yield* HttpRouter.RouteContext).route
        if (unlimited.has(path)) return yield* handler
        const { hasKey, name, scope } = yield* Caller
        const { socket } = yield* Provenance.message
        const limited = yield* Effect.result(hasKey ? limits.key(name) : limits.address(socket.remoteAddress ?? ""))
        if (limited._tag === "Failure") return toResponse(limited.failure)
        const needed = scopeOf(path)
        if (needed === undefined) return yield* handler
        if (scope === undefined) return toResponse(unauthorized)
        return needed === "operator" && scope === "customer" ? toResponse(forbidden(name)) : yield* handler
      })
  })
)
