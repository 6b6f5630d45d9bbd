/**
 * Each route's scope, the caller of a request, and the refusal of a caller who may not use it.
 *
 * It goes by the route that the router has found, and not by the path as it is spelt. A route that nobody has thought of here needs an
 * operator's key. Under /admin the method decides: who may read may not write, whichever handler is behind the route.
 */
import { Context, Effect, References } from "effect"
import { HttpRouter, HttpServerRequest } from "effect/http"
import { Problem, toResponse } from "../Problems.ts"
import { Caller, type Scope } from "./Caller.ts"
import { Credentials } from "./Credentials.ts"
import * as Provenance from "./Provenance.ts"
import { RateLimits } from "./RateLimits.ts"

/**
 * Open, and without a limit. An orchestrator that is refused would end a healthy process, and an attacker may share its address. The
 * gateway's reports are signed, and one that is refused delays a payment's outcome.
 */
const unlimited = new Set(["/health/live", "/health/ready", "/webhooks/gateway"])
/** Open: they tell what this service's public source tells. */
const documentation = new Set(["/", "/openapi.json", "/docs"])

/** Methods that only read. */
const reads = new Set(["GET", "HEAD"])

/** Whether a route belongs to the operators' API, which needs a proven caller wherever the service runs. */
export const isAdmin = (route: string): boolean => /^\/admin(?:\/|$)/.test(route)

/** The files of the console are public source, too. Its data is under /admin. */
const isConsole = (route: string): boolean => /^\/console(?:\/|$)/.test(route)

/**
 * The scope that a request to a route needs; undefined where it is open. Routes are written with their parameters: `/orders/:id`. Signing in is
 * open, as its body has the credential; a viewer may sign out.
 */
export const scopeOf = (method: string, route: string): Scope | undefined => {
  if (unlimited.has(route) || documentation.has(route) || isConsole(route)) return undefined
  if (/^\/(?:orders|payments)(?:\/|$)/.test(route)) return "customer"
  if (route === "/admin/session") return method === "POST" ? undefined : "viewer"
  return isAdmin(route) && reads.has(method) ? "viewer" : "operator"
}

/** Whether a caller of this scope may do what `needed` may. A viewer sees orders and payments as well: the console shows them. */
const isEnough = (scope: Scope, needed: Scope, method: string): boolean =>
  scope === needed || scope === "operator" || (scope === "viewer" && needed === "customer" && reads.has(method))

const forbidden = (name: string, scope: Scope, needed: Scope) =>
  new Problem({ status: 403, detail: `${name} has the scope ${scope}, and this needs ${needed}` })

/** Recognises the caller of each request, whose name is then on every log line of the request. */
export const identifying = <A, E, R>(handler: Effect.Effect<A, E, R>) =>
  Effect.map(Credentials, ({ callerOf }) =>
    Effect.flatMap(Provenance.message, (request) => {
      // An open route asks for no session, so that it does not wait for the database. A path that is spelt otherwise has another route, or none.
      const needed = scopeOf(request.method ?? "", (request.url ?? "").split("?", 1)[0]!)
      return Effect.flatMap(callerOf(request, needed !== undefined), (caller) =>
        Effect.updateContext(handler, (context: Context.Context<R>) => {
          const annotations = { ...Context.get(context, References.CurrentLogAnnotations), caller: caller.name }
          return context.pipe(Context.add(Caller, caller), Context.add(References.CurrentLogAnnotations, annotations))
        })
      )
    })
  )

/** Around each route: answers 429 to a {@link Caller} who asks too often, 401 and 403 to one who may not ask this. */
export const middleware = HttpRouter.middleware(
  Effect.gen(function* () {
    const limits = yield* RateLimits
    const credentials = yield* Credentials
    return (handler) =>
      Effect.contextWith((context: Context.Context<HttpRouter.RouteContext | HttpServerRequest.HttpServerRequest>) => {
        const { path } = Context.get(context, HttpRouter.RouteContext).route
        if (unlimited.has(path)) return handler
        const { isProven, name, refusal, scope } = Context.get(context, Caller)
        const request = Provenance.messageOf(Context.get(context, HttpServerRequest.HttpServerRequest))
        const admitted = Effect.suspend(() => {
          const method = request.method ?? ""
          const needed = scopeOf(method, path)
          if (needed === undefined) return handler
          if (refusal !== undefined) return Effect.succeed(toResponse(refusal))
          if (scope === undefined || (isAdmin(path) && !isProven)) {
            return Effect.map(credentials.refusal(request, isAdmin(path) ? "admin" : "other"), toResponse)
          }
          return isEnough(scope, needed, method) ? handler : Effect.succeed(toResponse(forbidden(name, scope, needed)))
        })
        return Effect.matchEffect(isProven ? limits.key(name) : limits.address(request.socket.remoteAddress ?? ""), {
          onFailure: (problem) => Effect.succeed(toResponse(problem)),
          onSuccess: () => admitted
        })
      })
  })
)
